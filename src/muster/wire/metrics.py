"""Points of metrics, as they are logged and as they are shown."""

from __future__ import annotations

from muster.wire.codec import Json
from muster.wire.message import wire


@wire
class MetricReport:
    """A point that is logged by a client, not by a rank."""

    name: str
    value: Json
    step: float | None = None
    type: str = "scalar"
    at: float = 0.0


@wire
class MetricReports:
    """The body of `POST runs/RUN/metrics`."""

    points: tuple[MetricReport, ...]


@wire
class MetricPoint:
    """A recorded point."""

    name: str
    value: Json
    """Numbers that JSON lacks are the texts `NaN`, `Infinity` and `-Infinity`."""
    step: float | None
    rank: int | None
    """None: logged by a node or by a client."""
    source: str
    """`rank_N`, `node` or `client`."""
    type: str
    at: float
    attempt: int
