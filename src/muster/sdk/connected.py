"""The part of a workspace that the rest of the SDK uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from muster.client.api import Client
from muster.client.workspace import WorkspaceRef

if TYPE_CHECKING:
    from muster.sdk.experiment import Experiment


class Connected(Protocol):
    """A workspace with a connection to its server."""

    @property
    def client(self) -> Client: ...

    @property
    def ref(self) -> WorkspaceRef: ...

    def experiment(self, name: str) -> Experiment: ...
