"""What the server asks of the process that exports telemetry, and what it hears from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.message import wire


@wire
class TelemetryOrder:
    """Said once, at the start of the process."""

    server: str
    """Where the process reaches the server, as a client like others."""
    workspace: str
    position: str
    """The file in which it keeps how far it is."""
    endpoint: str
    """Of the collector: `/v1/traces`, `/v1/metrics` and `/v1/logs` are below it."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str = field(default="", repr=False, metadata=OMIT)


@wire
class TelemetryLook:
    """There may be something new."""

    at: float


@wire
class TelemetryReport:
    """What came of a look."""

    is_behind: bool
    """The collector has not taken everything."""
    trouble: str = ""
    refused: int = 0
    """Items that the collector will never take, since the process started."""
