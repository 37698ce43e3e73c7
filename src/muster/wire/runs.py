"""Runs: what is submitted, what clients see, what they may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from muster.defaults import RUNS_AT_ONCE
from muster.wire.checkpoints import CheckpointView
from muster.wire.codec import OMIT, Json
from muster.wire.data.access import FileBrief
from muster.wire.environments import EnvironmentBrief
from muster.wire.message import check_range, wire
from muster.wire.queue_jobs import QueueJob
from muster.wire.states import Phase, RankEnd, RankState, RunStatus
from muster.wire.text import printable
from muster.wire.verdicts import Verdict


@wire
class Submission:
    """The body of `POST runs`; the same key again is the same run."""

    key: str
    spec: Mapping[str, Json]
    """The job document."""
    snapshot: str | None = None
    """The digest of the code's snapshot."""
    python: str | None = None
    packages: Mapping[str, str] | None = None
    """Versions of frameworks in `python`, where they may satisfy the environment that the job names."""
    submitted_by: str | None = None
    """The person of the token; set by the server."""
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_range("the length of key", len(self.key), 1, 200)


@wire
class SubmitRuns:
    """The body of `POST runs/many`: all of them, or none where one is refused."""

    runs: tuple[Submission, ...]

    def __post_init__(self) -> None:
        check_range("the number of runs", len(self.runs), 1, RUNS_AT_ONCE)


@wire
class Changes:
    """The body of `PATCH runs/RUN`; tags are merged, a null tag is removed."""

    tags: Mapping[str, str | None] | None = field(default=None, metadata=OMIT)
    display_name: str | None = field(default=None, metadata=OMIT)
    description: str | None = field(default=None, metadata=OMIT)

    def __post_init__(self) -> None:
        if self.display_name is not None and printable(self.display_name) != self.display_name:
            raise ValueError(f"display_name {self.display_name!r} has characters that are not shown: use others")


@wire
class Cancel:
    """The body of `POST runs/RUN/cancel`."""

    force: bool = False
    """Kill without grace."""


@wire
class CancelRuns:
    """The body of `POST runs/cancel`: all of them, or none where one is not known."""

    runs: tuple[str, ...]
    force: bool = False


@wire
class CancelledRun:
    """One run of a cancel request, and its state afterwards."""

    id: str
    status: RunStatus
    ended_before: bool = False
    """It had ended already, and is unchanged."""


@wire
class NodeOfAttempt:
    """One node that an attempt has."""

    rank: int
    name: str
    address: str
    phase: Phase
    gpus: tuple[str, ...]
    cpus: int | None = field(default=None, metadata=OMIT)
    """How many CPUs the attempt had there."""


@wire
class RankView(RankEnd):
    """One rank of an attempt."""

    rank: int
    node: str | None
    role: str
    state: RankState
    pid: int | None
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    signal: int | None
    expected: bool
    """Muster's own signal ended it."""
    log: str


@wire
class AttemptView:
    """One attempt of a run."""

    number: int
    status: RunStatus
    created_at: float
    started_at: float | None
    ended_at: float | None
    resumed_from: int | None
    """The checkpoint that was restored."""
    verdict: Verdict | None
    nodes: tuple[NodeOfAttempt, ...]
    ranks: tuple[RankView, ...]
    job_id: str | None = field(default=None, metadata=OMIT)
    """Its id in the queue of its cluster: Slurm's job id, for `sacct`, `seff` and `scontrol`."""
    queue_job: QueueJob | None = field(default=None, metadata=OMIT)
    """Its state in that queue."""


@wire
class Progress:
    """The progress of a run, as its script reports it."""

    done: int | float | None
    """As the script gave it: a whole number stays one."""
    total: int | float | None = None
    unit: str | None = ""
    rank: int | None = field(default=None, metadata=OMIT)
    """The rank that reports it; a gang is as far as its slowest rank."""


def slowest(reports: Iterable[Progress]) -> Progress | None:
    """The report of the slowest rank."""
    return min(reports, key=lambda item: (item.done or 0.0) / (item.total or 1.0), default=None)


def rank_of(source: str) -> int | None:
    """The rank of a source, including event files (`rank_0.wandb`); None for a node or a client."""
    rank = source.removeprefix("rank_").partition(".")[0]
    return int(rank) if rank.isascii() and rank.isdigit() and len(rank) < 10 else None


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


@wire
class MetricSeries:
    """The points of one metric that came from one source in one attempt, as columns of the same length."""

    name: str
    source: str
    """`rank_N`, `node` or `client`."""
    rank: int | None
    attempt: int
    type: str
    count: int
    """How many points there are; fewer may be listed, but always the least and the greatest of an interval."""
    least: float | None
    greatest: float | None
    values: tuple[Json, ...]
    """Numbers that JSON lacks are the texts `NaN`, `Infinity` and `-Infinity`."""
    steps: tuple[float | None, ...]
    at: tuple[float, ...]
    order: tuple[int, ...]
    """Increases in the order in which points of all series arrived."""


@wire
class FileView:
    """A file of a run."""

    path: str
    size: int
    sha256: str | None
    """None: it still grows."""
    attempt: int


@wire
class Between:
    """A predicted interval, and later whether it was right."""

    low_at: float
    high_at: float
    held: bool | None = None
    """Whether the actual time was within it; None: not known yet."""


@wire
class RunView:
    """What clients see of a run."""

    id: str
    name: str | None
    display_name: str | None
    experiment: str
    status: RunStatus
    reason: str
    """Why it waits; empty when it does not."""
    starts_at: float | None
    """When a queued run is expected to start, where that is known; in Slurm's queue, its estimate."""
    created_at: float
    queued_at: float | None
    started_at: float | None
    ended_at: float | None
    submitted_by: str | None
    compute: str
    tags: Mapping[str, str]
    description: str | None
    num_nodes: int
    num_ranks: int
    notices: tuple[str, ...]
    verdict: Verdict | None
    attempts: tuple[AttemptView, ...]
    checkpoints: tuple[CheckpointView, ...]
    """The newest first."""
    retry_at: float | None
    excluded_nodes: tuple[str, ...]
    metrics: Mapping[str, Json]
    """The last value of each."""
    progress: Progress | None
    files: tuple[FileBrief, ...]
    environment: EnvironmentBrief | None
    spec: Mapping[str, Json]
    """The job document."""
    starts_between: Between | None = field(default=None, metadata=OMIT)
    """When it starts, with a probability of 80 %; only while it is queued."""
    told_at_first: Between | None = field(default=None, metadata=OMIT)
    """The estimate of its start when it began to wait; None: it did not have to."""
    ends_between: Between | None = field(default=None, metadata=OMIT)
    """When a run that has nodes ends, with a probability of 80 %, by similar runs and its own progress."""
    moved_at: float | None = field(default=None, metadata=OMIT)
    """When a running run last printed or logged something."""
    snapshot: str | None = field(default=None, metadata=OMIT)
    """The digest of its code."""
    params: Mapping[str, str] = field(default_factory=dict, metadata=OMIT)
    """Parameters that its script logged."""
