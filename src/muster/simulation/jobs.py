"""The jobs of a simulated cluster, and their results."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.control.estimates.book import Traits
from muster.control.scheduling.model import Gang, Need

DAY_S = 86_400.0
CLUSTER = "simulated"


@dataclass(frozen=True)
class Machines:
    """The simulated cluster."""

    num_nodes: int
    gpus_per_node: int
    days: float
    """How long it is watched; utilisation is measured over this time."""
    mean_days_between_failures: float = math.inf
    """Of one node."""
    seed: int = 7

    @property
    def num_gpus(self) -> int:
        return self.num_nodes * self.gpus_per_node


@dataclass(frozen=True)
class Job:
    """A gang that arrives at its `queued_at`, and its actual length."""

    gang: Gang
    run_s: float
    traits: Traits = ()
    """What it shares with other jobs; the fewer the traits, the less can be learned."""

    def without_limit(self) -> Job:
        return replace(self, gang=replace(self.gang, limit_s=None))


@dataclass
class Outcome:
    """The results of the jobs under one policy."""

    name: str
    waits_s: list[float] = field(default_factory=list)
    """The wait of each job from its arrival to its first start, in the order of arrival."""
    use: float = 0.0
    """Busy GPUs over all days, without the work that failures and preemptions undid. Work left after that does not
    count, so one large job just before the end or after it changes much."""
    gpu_hour_wait_s: float = 0.0
    """How long an hour of GPU work waits on average: the waits of the jobs, each weighted by its work. It shows how
    much work is pending on average over all days, wherever they end."""
    failures: int = 0
    preemptions: int = 0
    passes: int = 0
    timeline: list[tuple[float, float, int]] = field(default_factory=list)
    """(day, share of busy GPUs, gangs in the queue), every hour."""
    forecasts: int = 0
    """How many jobs had to wait and got a forecast of their start, at first and an hour later."""
    held: int = 0
    later_forecasts: int = 0
    later_held: int = 0

    @property
    def mean_wait_s(self) -> float:
        return sum(self.waits_s) / len(self.waits_s)

    @property
    def longest_wait_s(self) -> float:
        return max(self.waits_s)

    def wait_s(self, share: float) -> float:
        """The wait that this share of the jobs does not exceed."""
        return sorted(self.waits_s)[min(len(self.waits_s) - 1, int(share * len(self.waits_s)))]

    @property
    def coverage(self) -> float | None:
        """The share of first forecasts that held; None if no job had to wait."""
        return self.held / self.forecasts if self.forecasts else None


def gpu_hour_wait_s(jobs: Sequence[Job], waits_s: Sequence[float], gpus_per_node: int) -> float:
    """The mean wait, each job weighted by its work."""
    work = [job.run_s * gpus_of(job.gang.need, gpus_per_node) for job in jobs]
    return sum(each * wait_s for each, wait_s in zip(work, waits_s, strict=True)) / sum(work)


def gpus_of(need: Need, gpus_per_node: int) -> float:
    """How many GPUs a gang holds."""
    return need.nodes * need.share * (gpus_per_node if need.gpus is None else need.gpus)


def waited_no_longer(waits_s: Sequence[float], seconds: float) -> float:
    """The share of sorted waits up to this length."""
    return bisect_right(waits_s, seconds) / len(waits_s)


def round_limit(seconds: float) -> float:
    """The next round time limit, as people request them."""
    step = 600.0 if seconds < 3600 else 3600.0 if seconds < DAY_S else 6 * 3600.0
    return math.ceil(seconds / step) * step
