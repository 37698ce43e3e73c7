"""The server-sent events of a run. `kind` is the name of the SSE event, the fields are its data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Literal, get_args

from muster.wire import runs
from muster.wire.codec import OMIT, Json, WireError, from_json
from muster.wire.message import wire
from muster.wire.states import Level, RunStatus
from muster.wire.verdicts import Verdict


@wire
class StateChanged:
    """The run is in another state, or says more of why it waits."""

    kind: ClassVar[str] = "state"

    status: RunStatus
    at: float
    reason: str = ""


@wire
class Note:
    """Something that people should read."""

    kind: ClassVar[str] = "note"

    level: Level
    text: str
    at: float
    data_wait: int | None = field(default=None, metadata=OMIT)
    """The attempt that waits for data more than it computes."""


@wire
class RankStarted:
    """A rank runs."""

    kind: ClassVar[str] = "rank"

    rank: int
    state: Literal["running"]
    at: float


@wire
class RankEnded:
    """A rank has ended."""

    kind: ClassVar[str] = "rank"

    rank: int
    node: str
    state: Literal["ended"]
    exit_code: int | None
    signal: int | None
    at: float


@wire
class CheckpointPublished:
    """A node has published its part of a checkpoint."""

    kind: ClassVar[str] = "checkpoint"

    name: str
    attempt: int
    node: str
    size: int
    at: float


@wire
class LogPiece:
    """Bytes of a log, in order for each stream."""

    kind: ClassVar[str] = "log"

    attempt: int
    stream: str
    offset: int
    base64: str

    @classmethod
    def of(cls, attempt: int, stream: str, offset: int, data: bytes) -> LogPiece:
        return cls(attempt, stream, offset, base64.b64encode(data).decode())

    @property
    def data(self) -> bytes:
        return base64.b64decode(self.base64)


@wire
class MetricLogged(runs.MetricPoint):
    """A point of a metric."""

    kind: ClassVar[str] = "metric"


@wire
class ProgressMade(runs.Progress):
    """How far a rank is."""

    kind: ClassVar[str] = "progress"


@wire
class RunEnded:
    """The last event of a run."""

    kind: ClassVar[str] = "end"

    status: RunStatus
    verdict: Verdict | None


StreamEvent = (
    StateChanged
    | Note
    | RankStarted
    | RankEnded
    | CheckpointPublished
    | LogPiece
    | MetricLogged
    | ProgressMade
    | RunEnded
)

_BY_KIND: Mapping[str, type[StreamEvent]] = {event.kind: event for event in get_args(StreamEvent)}
KINDS = frozenset(_BY_KIND)


def decode_event(kind: str, data: Json) -> StreamEvent:
    """An event out of its `event:` and `data:`; raises WireError for one that is not known."""
    if kind not in _BY_KIND:
        raise WireError(f"there is no event {kind!r} in a run's stream")
    if kind == "rank" and isinstance(data, Mapping) and data.get("state") == "running":
        return from_json(RankStarted, data)
    return from_json(_BY_KIND[kind], data)
