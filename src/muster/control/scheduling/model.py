"""What the scheduler looks at and what it decides: plain data."""

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
    """Gangs with the same word here keep off each other's nodes, where there are others."""
    length: Length | None = None
    """How long it is likely to take; None: nobody knows, its limit alone counts."""
    likely_s: float = field(init=False, default=UNKNOWN)
    """What it probably takes; infinite where nobody knows."""
    order: tuple[float, int] = field(init=False, default=(0.0, 0))
    """Its place in the queue: priority is a head start and length a handicap, both bounded: nobody waits for ever."""

    def __post_init__(self) -> None:
        place = self.queued_at - self.priority * PRIORITY_HEADSTART_S
        if self.limit_s is not None:
            object.__setattr__(self, "likely_s", min(self.limit_s, _generous(self.length)))
        elif self.length is not None:
            place += min(LENGTH_HANDICAP_MOST_S, LENGTH_HANDICAP * self.length.quantile(0.5))
            object.__setattr__(self, "likely_s", self.length.quantile(LIKELY_SHARE))
        object.__setattr__(self, "order", (place, self.seq))

    def until(self, now: float) -> float:
        """When it has ended at the latest, by what it declares, if it starts now."""
        return UNKNOWN if self.limit_s is None else now + self.limit_s + START_MARGIN_S

    def planned_until(self, now: float) -> float:
        """The same by what is planned with: a limit that is far too long is not believed."""
        return UNKNOWN if self.limit_s is None else now + self.likely_s + START_MARGIN_S


def _generous(length: Length | None, elapsed_s: float = 0.0) -> float:
    """A declared limit is planned with, unless it is many times what such runs take."""
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
    """Its place in the queue, should it go back there."""
    preemptible: bool | None = None
    user: str = ""
    experiment: str = ""
    stopping: bool = False
    """It has been told to end."""
    length: Length | None = None
    """How long it takes, as far as one could tell before it began; None: nobody knows."""
    checkpoints: bool = False
    """It has saved what it did, and goes on from there."""
    apart: str = ""
    """Others with the same word keep off its nodes."""

    def likely_end(self, now: float, share: float = LIKELY_SHARE) -> float:
        """When it has ended in so many cases, given that it still runs; never later than its limit."""
        if self.length is None or self.stopping:
            return self.until
        elapsed_s = now - self.since
        if self.until != UNKNOWN:
            return min(self.until, now + _generous(self.length, elapsed_s))
        return now + self.length.quantile(share, elapsed_s)

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
    """The whole gang begins, each part on its place."""

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
    """Gangs of higher priority may end those of lower priority, where the job says nothing else."""
    max_passed_over: int = MAX_PASSED_OVER
    """How often a gang may be passed over, for each node that it needs."""
    coming: int = 0
    """Nodes that are not here and could still come."""
    closed: str = ""
    """Why nothing starts at all, if so."""
    hands_on: bool = False
    """Somebody else queues its gangs and chooses their nodes: quotas hold, the rest is theirs to decide."""
    per_user: Quota = Quota()
    per_experiment: Quota = Quota()
    users: Mapping[str, Quota] = field(default_factory=dict)
    experiments: Mapping[str, Quota] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    """Runs that wait for other runs or for their environment, and for which."""
    kept_off: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Nodes that a run should not get now, since its environment lies elsewhere."""
    used: Mapping[str, float] = field(default_factory=dict)
    """What each user has used lately, the older the less; empty: all are equal."""


@dataclass(frozen=True)
class Head:
    """The first gang that waits for nodes, and the nodes that are kept for it."""

    gang: Gang
    starts_by: float
    """By the declared time limits of those who hold its nodes; infinite where one has none."""
    pools: frozenset[str] = frozenset()
    likely_at: float = UNKNOWN
    """When those have probably ended."""
    cases: tuple[float, ...] = ()
    """Moments at which it could start but for its guests, each as likely as the others."""
    first_at: float = 0.0
    """Since when it is the first that waits."""
    due_at: float = UNKNOWN
    """When it would have started if nobody behind it had started since then; infinite while that has not come."""
    passes_left: float = UNKNOWN
    """How often it may still be passed over."""

    def is_closed(self, now: float) -> bool:
        """Whether nobody passes it any more, whatever is expected: only who promises to end in time."""
        return self.passes_left <= 0 or now >= self.closes_at

    @property
    def closes_at(self) -> float:
        """From when on nobody passes it, whatever is expected: a while after it would have started."""
        return self.due_at + LATE_S + LATE_SHARE * max(0.0, self.due_at - self.gang.queued_at)


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A gang starts on nodes that are kept for another: it is expected to end in time, and has not promised to."""

    run_id: str
    """Who is overtaken."""
    by_run: str
    delay_s: float
    """By how much that is expected to delay it."""


@dataclass(frozen=True)
class Decision:
    """What one pass of the scheduler found."""

    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preempt, ...] = ()
    heads: Mapping[str, Head] = field(default_factory=dict)
    """By cluster."""
    overtakings: tuple[Overtaking, ...] = ()
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """Gangs that wait for something else than nodes, and for what."""
