"""The context that the server's rooms share, with each room's own state."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field
from functools import partial

from muster.paths import WorkspacePaths
from muster.server.data.state import DataState, WorkspaceFiles
from muster.server.database.connection import Database
from muster.server.disk import DiskState
from muster.server.endpoints.state import EndpointsState
from muster.server.fileservers.state import FileServersState
from muster.server.hub import Hub
from muster.server.logs.steps import PrintedSteps
from muster.server.monitoring.settings import TelemetrySettings
from muster.server.nodes.state import NodesState, RemoteAccess
from muster.server.notifications.state import NotificationsState
from muster.server.people import audit
from muster.server.people.access import Tokens
from muster.server.people.sso import SsoState
from muster.server.people.vault import Vault
from muster.server.portal.sessions import PortalState
from muster.server.queue.state import RunsState
from muster.server.tracking.answers import Answers
from muster.server.tunnels.state import Tunnels
from muster.storage.reach import Reach


@dataclass
class Context:
    """One workspace in its server."""

    workspace_id: str
    paths: WorkspacePaths
    database: Database
    hub: Hub
    files: WorkspaceFiles
    tokens: Tokens
    vault: Vault
    """Seals credentials and secrets; signs grants."""
    nodes: NodesState
    runs: RunsState = field(default_factory=RunsState)
    data: DataState = field(default_factory=DataState)
    remote: RemoteAccess = field(default_factory=RemoteAccess)
    reach: Reach = field(default_factory=Reach)
    """What non-administrators may access on this machine."""
    sso: SsoState | None = None
    """Single sign-on; None: people only use tokens."""
    fingerprint: str | None = None
    """The fingerprint by which clients recognize the server, where its certificate is self-signed."""
    grants_subnet: ipaddress.IPv4Network | None = None
    """The only network from which grants are valid; see `data.grants.read_subnet`."""
    isolation: str = ""
    """The isolation of ranks from files of others and of the server; see `control.isolation`."""
    disk: DiskState = field(default_factory=DiskState)
    tunnels: Tunnels = field(default_factory=Tunnels)
    endpoints: EndpointsState = field(default_factory=EndpointsState)
    fileservers: FileServersState = field(default_factory=FileServersState)
    answers: Answers = field(default_factory=Answers)
    portal: PortalState = field(default_factory=PortalState)
    printed: PrintedSteps = field(default_factory=PrintedSteps)
    """The progress of scripts, by the steps that they print."""
    notifications: NotificationsState = field(default_factory=NotificationsState)
    telemetry: TelemetrySettings | None = None
    """Where telemetry of runs is exported to; None: nowhere."""
    missing_runs: str = ""
    """Which runs the store has and the database lacks, for people."""
    touched: float = field(default_factory=time.monotonic)
    """When a client last sent a request."""

    def __post_init__(self) -> None:
        self.database.witness = audit.witness
        self.tokens.on_change = partial(self.hub.wake_soon, lambda: self.tunnels.keep(self.tokens.holds))

    def publish(self, run: str, attempt: int) -> None:
        """Move an ended attempt's streams to the store in the background; until then they are read here."""
        if self.files.store.local_root is None or self.files.ring is not None:
            self.hub.in_background(partial(self._publish, run, attempt))

    def _publish(self, run: str, attempt: int) -> None:
        self.files.streams.finish(run, attempt)
        self.files.streams.publish(self.files.store, run, attempt)
