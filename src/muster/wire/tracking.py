"""What runs log, without points: summaries of metrics, parameters, and lists of runs by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT, Json
from muster.wire.message import wire
from muster.wire.runs import Between, Progress
from muster.wire.states import RunStatus

SummaryValue = Literal["last", "best", "least", "greatest"]
"""The value of a metric that runs are compared by."""
RunColumn = Literal[
    "created", "started", "ended", "duration", "name", "experiment", "status", "person", "cluster", "nodes"
]
"""What a list of runs can be ordered by, besides metrics and parameters."""


PARENT_TAG = "mlflow.parentRunId"
"""Set by tools on a run that another run made: which one."""
RUN_HEADER, ATTEMPT_HEADER, EVENTS_HEADER = "Muster-Run", "Muster-Attempt", "Muster-Events"
"""The run that an agent calls for, and how much of its ranks' events must be processed before the answer."""


@wire
class SummaryQuery:
    """Which runs are listed with their metrics and parameters, and in which order. The query of `GET summaries`."""

    experiment: str | None = field(default=None, metadata=OMIT)
    status: tuple[str, ...] = field(default=(), metadata=OMIT)
    run: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Only these; without any all of them."""
    name: tuple[str, ...] = field(default=(), metadata=OMIT)
    """The metrics to list for each; without any all of them."""
    metric: str | None = field(default=None, metadata=OMIT)
    """Order by this one; runs that did not log it come last. Otherwise the newest run comes first."""
    by: SummaryValue = "best"
    ascending: bool | None = field(default=None, metadata=OMIT)
    """None: the best first."""
    param: str | None = field(default=None, metadata=OMIT)
    """Order by this parameter."""
    sort: RunColumn | None = field(default=None, metadata=OMIT)
    person: str | None = field(default=None, metadata=OMIT)
    cluster: str | None = field(default=None, metadata=OMIT)
    tag: tuple[str, ...] = field(default=(), metadata=OMIT)
    """`NAME=VALUE`, or `NAME` for any value."""
    since: float | None = field(default=None, metadata=OMIT)
    text: str | None = field(default=None, metadata=OMIT)
    """Words that each must stand in the run's id, names, experiment, person, description or tags."""


@wire
class RunParam:
    """A parameter that a run was given, or chose."""

    name: str
    value: str


@wire
class MetricSummary:
    """One metric that one source logged in one attempt."""

    name: str
    source: str
    """`rank_N`, `node` or `client`."""
    rank: int | None
    attempt: int
    type: str
    count: int
    last: Json
    """Numbers that JSON lacks are the texts `NaN`, `Infinity` and `-Infinity`."""
    best: float | None
    """The least where the name says so (a loss, an error, a time), the greatest otherwise."""
    best_step: float | None
    least: float | None
    least_step: float | None
    greatest: float | None
    greatest_step: float | None
    first_step: float | None
    last_step: float | None
    first_at: float
    last_at: float


@wire
class RunMetric:
    """A metric of a run over all its ranks and attempts."""

    last: Json
    best: float | None
    least: float | None
    greatest: float | None
    count: int
    last_step: float | None
    last_at: float


@wire
class RunSummary:
    """A run in a table of runs: its identity, parameters and results."""

    id: str
    name: str | None
    display_name: str | None
    experiment: str
    status: RunStatus
    created_at: float
    started_at: float | None
    ended_at: float | None
    submitted_by: str | None
    compute: str
    num_nodes: int
    num_ranks: int
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, RunMetric]
    attempt: int = field(default=0, metadata=OMIT)
    """How many attempts it has had."""
    snapshot: str | None = field(default=None, metadata=OMIT)
    progress: Progress | None = field(default=None, metadata=OMIT)
    reason: str = field(default="", metadata=OMIT)
    """Why it waits."""
    starts_at: float | None = field(default=None, metadata=OMIT)
    ends_between: Between | None = field(default=None, metadata=OMIT)
    verdict: str = field(default="", metadata=OMIT)
    """How it failed, in a line."""


@wire
class Facet:
    """A value that runs can be filtered by."""

    value: str
    runs: int


@wire
class Facets:
    """What the runs of a workspace can be filtered by, the most frequent first."""

    statuses: tuple[Facet, ...]
    experiments: tuple[Facet, ...]
    people: tuple[Facet, ...]
    clusters: tuple[Facet, ...]
