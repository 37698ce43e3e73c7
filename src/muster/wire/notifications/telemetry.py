"""Messages between the server and the process that exports telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.message import wire


@wire
class TelemetryOrder:
    """Sent once, at the start of the process."""

    server: str
    """The server's address for the process, a client like others."""
    workspace: str
    position: str
    """The file in which it stores its position."""
    endpoint: str
    """The collector's address: `/v1/traces`, `/v1/metrics` and `/v1/logs` are below it."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str = field(default="", repr=False, metadata=OMIT)


@wire
class TelemetryLook:
    """There may be something new."""

    at: float


@wire
class TelemetryReport:
    """The outcome of a look."""

    is_behind: bool
    """The collector has not accepted everything yet."""
    trouble: str = ""
    refused: int = 0
    """How many items the collector rejected for good since the process started."""
