"""Secrets of the workspace, under v1's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

from muster.client.api import Client
from muster.errors import JobError
from muster.runtime.run import SECRET_VARIABLE
from muster.sdk.connected import Connected

_set_here: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()
"""Names of secrets that this process has set, by connection."""


class Keyvault:
    """Secrets: stored encrypted by the server, given to jobs, never read back."""

    def __init__(self, workspace: Connected) -> None:
        self._client = workspace.client

    def set_secret(self, name: str, value: str) -> None:
        """Store a secret; jobs that this process submits get it with `run.get_secret(name)`."""
        stored = stored_name(name)
        self._client.set_secret(stored, value)
        _set_here.setdefault(self._client, set()).add(stored)

    def set_secrets(self, secrets_batch: Mapping[str, str]) -> None:
        """Store several secrets."""
        for name, value in secrets_batch.items():
            self.set_secret(name, value)

    def list_secrets(self) -> list[dict[str, str]]:
        """The names of the secrets."""
        return [{"name": view.name} for view in self._client.secrets()]

    def delete_secret(self, name: str) -> None:
        """Remove a secret."""
        stored = stored_name(name)
        self._client.remove_secret(stored)
        _set_here.get(self._client, set()).discard(stored)

    def delete_secrets(self, secrets_batch: Iterable[str]) -> None:
        """Remove several secrets."""
        for name in secrets_batch:
            self.delete_secret(name)

    def get_secret(self, name: str) -> str:
        """Refused: a secret is given only to jobs."""
        stored = stored_name(name)
        raise JobError(
            f"the secret {stored} cannot be read back",
            f"In a job's environment_variables ${{{{secrets.{stored}}}}} stands for it.",
        )

    def get_secrets(self, secrets: Iterable[str]) -> dict[str, str]:
        """Refused, as `get_secret` is."""
        return {name: self.get_secret(name) for name in secrets}


def stored_name(name: str) -> str:
    """The name that a secret is stored under: v1 allows hyphens, which a variable cannot have."""
    return name.replace("-", "_")


def variables(client: Client) -> dict[str, str]:
    """The variables that give a job the secrets that this process has set."""
    return {f"{SECRET_VARIABLE}{name}": f"${{{{secrets.{name}}}}}" for name in sorted(_set_here.get(client, ()))}
