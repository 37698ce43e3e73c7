"""The scheduler's input and output: plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.control.estimates.length import Length
from muster.defaults import (
    LATE_S,
    LATE_SHARE,
    LENGTH_HANDICAP,
    LENGTH_HANDICAP_MOST_S,
    LIKELY_SHARE,
    LIMIT_GENEROUS,
    MAX_PASSED_OVER,
    PRIORITY_HEADSTART_S,
    START_MARGIN_S,
)

LOW, MEDIUM, HIGH = 0, 1, 2
UNKNOWN = math.inf
"""The end of a run that declares no time limit."""


class Need(NamedTuple):
    """The shape of a gang: equal shapes fit, or do not fit, alike."""

    nodes: int
    ranks: int
    """Of the fullest node."""
    gpus: int | None
    """On each node; None: all that a node (or its share of the machine) has."""
    share: float = 1.0
    """Below 1: this part of one GPU on each node; others have the rest of it."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A run that waits for nodes."""

    run_id: str
    title: str
    cluster: str
    need: Need
    priority: int = MEDIUM
    queued_at: float = 0.0
    seq: int = 0
    user: str = ""
    experiment: str = ""
    limit_s: float | None = None
    """The time limit that the job declares."""
    not_before: float = 0.0
    excluded: frozenset[str] = frozenset()
    """Nodes that it should not get again."""
    preemptible: bool | None = None
    """Whether a gang of higher priority may end it; None: as its cluster says."""
    apart: str = ""
    """The anti-affinity group: its gangs avoid each other's nodes where there are others."""
    length: Length | None = None
    """How long it is likely to take; None: unknown, only its limit counts."""
    likely_s: float = field(init=False, default=UNKNOWN)
    """Its likely duration; infinite where unknown."""
    order: tuple[float, int] = field(init=False, default=(0.0, 0))
    """Its place in the queue: priority is a head start, length a handicap; both are bounded, so nobody starves."""

    def __post_init__(self) -> None:
        place = self.queued_at - self.priority * PRIORITY_HEADSTART_S
        if self.limit_s is not None:
            object.__setattr__(self, "likely_s", min(self.limit_s, _believable_s(self.length)))
        elif self.length is not None:
            place += min(LENGTH_HANDICAP_MOST_S, LENGTH_HANDICAP * self.length.quantile(0.5))
            object.__setattr__(self, "likely_s", self.length.quantile(LIKELY_SHARE))
        object.__setattr__(self, "order", (place, self.seq))

    def until(self, now: float) -> float:
        """Its latest end by its declared limit, if it starts now."""
        return UNKNOWN if self.limit_s is None else now + self.limit_s + START_MARGIN_S

    def planned_until(self, now: float) -> float:
        """Its latest end for planning: a limit that is far too long is not believed."""
        return UNKNOWN if self.limit_s is None else now + self.likely_s + START_MARGIN_S


def _believable_s(length: Length | None, elapsed_s: float = 0.0) -> float:
    """An upper bound for planning where declared limits are many times what such runs take."""
    return UNKNOWN if length is None else LIMIT_GENEROUS * length.quantile(0.9, elapsed_s) + START_MARGIN_S


@dataclass(frozen=True, slots=True)
class Node:
    """A node that could take a part of a gang."""

    name: str
    host: str
    address: str
    cpus: int
    gpus: tuple[str, ...] = ()
    pool: str = ""
    """Nodes of one pool share its CPUs and GPUs; empty: a pool of its own."""
    price_per_hour: float | None = None

    @property
    def pool_name(self) -> str:
        return self.pool or self.name


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of a running gang holds of a node."""

    node: str
    host: str
    ranks: int
    gpus: tuple[str, ...] = ()
    share: float = 1.0
    """How much of its GPU it holds."""


@dataclass(frozen=True, slots=True)
class Running:
    """A gang that holds nodes."""

    run_id: str
    title: str
    cluster: str
    parts: tuple[Part, ...]
    until: float = UNKNOWN
    since: float = 0.0
    priority: int = MEDIUM
    order: tuple[float, int] = (math.inf, 0)
    """Its place in the queue if it goes back there."""
    preemptible: bool | None = None
    user: str = ""
    experiment: str = ""
    stopping: bool = False
    """It has been told to stop."""
    length: Length | None = None
    """How long it was expected to take before it began; None: unknown."""
    checkpoints: bool = False
    """It has saved a checkpoint and can resume from it."""
    before_s: float = 0.0
    """How long the earlier attempts ran from whose checkpoint it resumed."""
    apart: str = ""
    """The anti-affinity group: others of it avoid its nodes."""

    def likely_end(self, now: float, share: float = LIKELY_SHARE) -> float:
        """The time by which it has ended in this share of cases, given that it still runs; at most its limit."""
        if self.length is None or self.stopping:
            return self.until
        elapsed_s = self.elapsed_s(now)
        if self.until != UNKNOWN:
            return min(self.until, now + _believable_s(self.length, elapsed_s))
        return now + self.length.quantile(share, elapsed_s)

    def elapsed_s(self, now: float) -> float:
        """How much of its length is behind it; time in the queue between attempts is none of it."""
        return max(0.0, now - self.since) + self.before_s

    @property
    def num_gpus(self) -> float:
        return sum(len(part.gpus) * part.share for part in self.parts)


@dataclass(frozen=True, slots=True)
class Place:
    """One node for one part of a gang."""

    node: Node
    ranks: int
    gpus: tuple[str, ...]
    share: float = 1.0
    """How much of its GPU it gets."""


@dataclass(frozen=True, slots=True)
class Start:
    """The whole gang starts, each part in its place."""

    run_id: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Preempt:
    """A running gang gives its nodes to one of higher priority."""

    run_id: str
    for_run: str
    why: str


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that one user, or one experiment, may hold of a cluster at a time."""

    nodes: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Rules:
    """How a cluster treats its queue."""

    backfill: bool = True
    preemption: bool = False
    """Gangs of higher priority may end those of lower priority, unless the job says otherwise."""
    max_passed_over: int = MAX_PASSED_OVER
    """How often a gang may be passed over, per node that it needs."""
    coming: int = 0
    """Nodes that are not up yet and could still come up."""
    closed: str = ""
    """Why nothing starts at all; empty: things start."""
    hands_on: bool = False
    """An external scheduler queues its gangs and chooses their nodes; only quotas are enforced here."""
    per_user: Quota = Quota()
    per_experiment: Quota = Quota()
    users: Mapping[str, Quota] = field(default_factory=dict)
    experiments: Mapping[str, Quota] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    """Runs that wait for other runs or for their environment, with the reason."""
    kept_off: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Nodes that a run should not get now, since its environment is on others."""
    used: Mapping[str, float] = field(default_factory=dict)
    """What each user has used lately, decayed over time; empty: all are equal."""


@dataclass(frozen=True)
class Head:
    """The first gang that waits for nodes, and the nodes reserved for it."""

    gang: Gang
    starts_by: float
    """By the declared time limits of the gangs on its nodes; infinite where one has none."""
    pools: frozenset[str] = frozenset()
    likely_at: float = UNKNOWN
    """When those have probably ended."""
    cases: tuple[float, ...] = ()
    """Equally likely start times if it had no guests."""
    first_at: float = 0.0
    """Since when it has been the first in the queue."""
    due_at: float = UNKNOWN
    """When it would have started if nobody behind it had started since then; infinite until that time comes."""
    passes_left: float = UNKNOWN
    """How often it may still be passed over."""

    def is_closed(self, now: float) -> bool:
        """Whether estimates no longer let anybody pass it: only a declared limit that ends in time does."""
        return self.passes_left <= 0 or now >= self.closes_at

    @property
    def closes_at(self) -> float:
        """From when on estimates let nobody pass it: a while after it would have started."""
        return self.due_at + LATE_S + LATE_SHARE * max(0.0, self.due_at - self.gang.queued_at)


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A gang starts on nodes reserved for another: it is expected to end in time, but its limit does not say so."""

    run_id: str
    """The run that is overtaken."""
    by_run: str
    delay_s: float
    """The expected delay of that run."""


@dataclass(frozen=True)
class Decision:
    """The outcome of one scheduler pass."""

    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preempt, ...] = ()
    heads: Mapping[str, Head] = field(default_factory=dict)
    """By cluster."""
    overtakings: tuple[Overtaking, ...] = ()
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Gangs that wait for something other than nodes, with the reason."""
