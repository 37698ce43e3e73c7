"""A made-up month: jobs with heavy-tailed sizes and lengths, most of them on weekdays by day."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from muster.control.scheduling.model import HIGH, LOW, MEDIUM, Gang, Need
from muster.simulation.jobs import CLUSTER, DAY_S, Job, Machines, gpus_of, round_limit


@dataclass(frozen=True)
class Month:
    """The size of the made-up cluster and of its load."""

    num_jobs: int = 100_000
    num_nodes: int = 1000
    gpus_per_node: int = 8
    days: float = 30.0
    load: float = 0.9
    """Submitted work, as a share of what the nodes could do."""
    mean_days_between_failures: float = 60.0
    """Of one node."""
    seed: int = 7

    @property
    def machines(self) -> Machines:
        return Machines(self.num_nodes, self.gpus_per_node, self.days, self.mean_days_between_failures, self.seed)


def make_jobs(month: Month) -> list[Job]:
    """Only the declared limit of a job, and the lengths of other jobs, tell anything about its length."""
    dice = random.Random(month.seed)
    arrivals = sorted(_arrival(dice, month.days) for _ in range(month.num_jobs))
    needs = [_need(dice, month) for _ in arrivals]
    lengths = [min(dice.lognormvariate(0.0, 1.6), 60.0) for _ in arrivals]
    work = sum(gpus_of(need, month.gpus_per_node) * length for need, length in zip(needs, lengths, strict=True))
    scale = month.load * month.num_nodes * month.gpus_per_node * month.days * DAY_S / work
    jobs = []
    for number, (at, need, length) in enumerate(zip(arrivals, needs, lengths, strict=True)):
        run_s = max(30.0, length * scale)
        limit_s = round_limit(run_s * dice.uniform(1.1, 3.0))
        priority = dice.choices((LOW, MEDIUM, HIGH), (0.3, 0.6, 0.1))[0]
        name = f"j{number}"
        gang = Gang(name, name, CLUSTER, need, priority, at, number, limit_s=limit_s, preemptible=priority == LOW)
        jobs.append(Job(gang, run_s, (need,)))
    return jobs


def _arrival(dice: random.Random, days: float) -> float:
    while True:
        at = dice.uniform(0.0, days)
        by_day = 0.6 + 0.4 * math.sin(2 * math.pi * (at % 1.0 - 0.3))
        if dice.random() < by_day * (0.5 if int(at) % 7 in (5, 6) else 1.0):
            return at * DAY_S


def _need(dice: random.Random, month: Month) -> Need:
    if dice.random() < 0.6:
        gpus = dice.choice([size for size in (1, 1, 2, 4) if size <= month.gpus_per_node])
        return Need(1, gpus, gpus)
    # Counted in whole nodes: half as many gangs with each doubling.
    most = max(1, month.num_nodes // 8)
    nodes = min(most, 2 ** int(min(7.0, dice.expovariate(math.log(2.0)))))
    return Need(nodes, month.gpus_per_node, None)
