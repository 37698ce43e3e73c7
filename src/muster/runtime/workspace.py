"""The workspace as a rank sees it."""

import os
from typing import Any

from muster.errors import MusterError


class Workspace:
    """The workspace as a rank sees it: its name, and nothing that would need the server."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.name = os.environ.get("MUSTER_WORKSPACE", "workspace")

    @classmethod
    def from_config(cls, *args: Any, **kwargs: Any) -> "Workspace":
        return cls()

    get = from_config

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unavailable(
            "workspace.{}".format(name),
            "Give the script its data as inputs (`run.input_datasets`), secrets as environment variables, and register "
            "models with `run.register_model`.",
        )


def unavailable(what: str, hint: str) -> MusterError:
    """The error of what needs the server."""
    return MusterError("a rank does not talk to the server, so {} is not available inside a run".format(what), hint)
