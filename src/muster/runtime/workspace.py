"""The workspace as a rank sees it."""

import importlib
import os
from typing import Any

from muster.errors import MusterError


class Workspace:
    """The workspace as a rank sees it: its name, and nothing that needs the server."""

    # The same values as those of the workspace where a job is submitted.
    subscription_id = resource_group = ""
    location = "local"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.name = os.environ.get("MUSTER_WORKSPACE", "workspace")

    @classmethod
    def from_config(cls, *args: Any, **kwargs: Any) -> "Workspace":
        return cls()

    get = from_config

    def get_default_keyvault(self) -> "Keyvault":
        """The secrets that the job was given."""
        return Keyvault()

    def get_mlflow_tracking_uri(self) -> str:
        """The address for MLflow's clients, which log to this run."""
        return os.environ.get("MLFLOW_TRACKING_URI", "")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unavailable(
            "workspace.{}".format(name),
            "Give the script its data as inputs (`run.input_datasets`), secrets as environment variables, and register "
            "models with `run.register_model`.",
        )


class Keyvault:
    """The secrets that the job was given."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Imported here, since the run's module imports this one.
        self._run = importlib.import_module("muster.runtime.run").Run.get_context()

    def get_secret(self, name: str) -> Any:
        return self._run.get_secret(name)

    def get_secrets(self, secrets: Any) -> Any:
        return self._run.get_secrets(secrets)

    def set_secret(self, name: str, value: str) -> None:
        raise unavailable("set_secret", "Set it where the job is submitted, with `muster secret set`.")


def unavailable(what: str, hint: str) -> MusterError:
    """The error of a call that needs the server."""
    return MusterError("a rank does not talk to the server, so {} is not available inside a run".format(what), hint)
