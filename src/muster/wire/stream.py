"""The server-sent events of a run. `kind` is the name of the SSE event, the fields are its data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Literal, get_args

from muster.wire import runs
from muster.wire.codec import OMIT, Json, WireError, from_json
from muster.wire.message import check_range, wire
from muster.wire.states import Level, RunStatus
from muster.wire.verdicts import Verdict


@wire
class LogQuery:
    """The requested part of what ranks print; by default all of it. The query of `GET runs/RUN/stream`."""

    rank: int | None = field(default=None, metadata=OMIT)
    attempt: int | None = field(default=None, metadata=OMIT)
    """Only this one."""
    from_attempt: int | None = field(default=None, metadata=OMIT)
    """This one and later ones."""
    tail: int | None = field(default=None, metadata=OMIT)
    """The last so many lines, and what follows."""
    head: int | None = field(default=None, metadata=OMIT)
    """So many lines, then end."""
    first_line: int | None = field(default=None, metadata=OMIT)
    """From this line on; the first is 1."""
    since: float | None = field(default=None, metadata=OMIT)
    """What arrived at the server at this time (in seconds since 1970) or later."""
    ago_s: float | None = field(default=None, metadata=OMIT)
    """The same, as seconds before now by the server's clock."""
    grep: str | None = field(default=None, metadata=OMIT)
    """Only lines that match this regular expression."""

    def __post_init__(self) -> None:
        for name in ("rank", "tail", "head", "since", "ago_s"):
            if (value := getattr(self, name)) is not None:
                check_range(name, value, 0, 1e15)
        for name in ("attempt", "from_attempt", "first_line"):
            if (value := getattr(self, name)) is not None:
                check_range(name, value, 1, 1e15)
        if self.tail is not None and (self.head is not None or self.first_line is not None):
            raise ValueError("tail counts lines from the end, head and first_line from the beginning: use one of them")
        if self.since is not None and self.ago_s is not None:
            raise ValueError("since and ago_s both say when: use one of them")
        if self.grep is not None:
            check_range("the length of grep", len(self.grep), 1, 1000)

    @property
    def by_line(self) -> bool:
        """Whether individual lines are selected, and not only where to begin."""
        return self.grep is not None or self.head is not None or self.first_line is not None


@wire
class StateChanged:
    """The run is in another state, or has another reason to wait."""

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
    """The progress of a rank."""

    kind: ClassVar[str] = "progress"


@wire
class RunEnded:
    """The last event of a run."""

    kind: ClassVar[str] = "end"

    status: RunStatus
    verdict: Verdict | None


@wire
class StreamRefused:
    """The stream cannot go on, and a retry would not help: the request was wrong."""

    kind: ClassVar[str] = "refused"

    message: str
    hint: str
    code: str


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
    | StreamRefused
)

_BY_KIND: Mapping[str, type[StreamEvent]] = {event.kind: event for event in get_args(StreamEvent)}
KINDS = frozenset(_BY_KIND)


def decode_event(kind: str, data: Json) -> StreamEvent:
    """An event from its `event:` and `data:`; raises WireError for an unknown one."""
    if kind not in _BY_KIND:
        raise WireError(f"there is no event {kind!r} in a run's stream")
    if kind == "rank" and isinstance(data, Mapping) and data.get("state") == "running":
        return from_json(RankStarted, data)
    return from_json(_BY_KIND[kind], data)
