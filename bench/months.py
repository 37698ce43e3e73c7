"""Many months made from one trace: does the queue do as well on them as on the trace itself?

Windows of the trace, its jobs in other orders, resampled with other arrivals, and on clusters of other shapes.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure import Figure, report
from muster.simulation.columns import Entry
from muster.simulation.jobs import DAY_S, Job, Machines, gpus_of
from muster.simulation.simulator import FIFO, MUSTER, WITHOUT_LIMITS, simulate
from muster.simulation.trace import Selection, read, select

LOAD = 0.85


@dataclass(frozen=True)
class Case:
    """One month of jobs and the cluster to run it on."""

    name: str
    machines: Machines
    jobs: tuple[Job, ...]

    @property
    def load(self) -> float:
        """The submitted work as a share of the nodes' capacity."""
        return work(self.jobs) / (self.machines.num_gpus * self.machines.days * DAY_S)


def work(jobs: Sequence[Job]) -> float:
    return sum(job.run_s * gpus_of(job.gang.need, 0) for job in jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True, help="a trace, as `muster simulate` reads it")
    parser.add_argument("--seeds", type=int, default=3, help="how many of each random kind")
    given = parser.parse_args()
    figures: list[Figure] = []
    met: dict[str, list[bool]] = {}
    for case in cases(read(given.trace.read_text(), given.trace.name).entries, given.seeds):
        found = measured(case)
        figures += found
        for figure in found:
            if figure.met is not None:
                met.setdefault(figure.name.rsplit(": ", 1)[1], []).append(figure.met)
    shares = [Figure(f"months that meet: {name}", sum(each) / len(each), "") for name, each in met.items()]
    report("months", [*figures, *shares], given.seeds < 3)


def measured(case: Case) -> list[Figure]:
    """One month without limits, with limits, and first in, first out."""
    ours, limits, fifo = (simulate(case.machines, case.jobs, policy) for policy in (WITHOUT_LIMITS, MUSTER, FIFO))
    name, hour = case.name, 3600.0
    figures = [
        Figure(f"{name}: load", case.load, ""),
        Figure(f"{name}: mean wait", ours.mean_wait_s / hour, "h", at_most=3.0),
        Figure(f"{name}: nine of ten wait at most", ours.wait_s(0.9) / hour, "h", at_most=6.0),
        Figure(f"{name}: longest wait", ours.longest_wait_s / hour, "h", at_most=fifo.longest_wait_s / hour),
        Figure(f"{name}: GPU use", ours.use, "", at_least=limits.use),
        Figure(f"{name}: mean wait of a GPU hour", ours.gpu_hour_wait_s / hour, "h"),
        Figure(f"{name}: mean wait of a GPU hour with limits", limits.gpu_hour_wait_s / hour, "h"),
        Figure(f"{name}: mean wait of a GPU hour first in, first out", fifo.gpu_hour_wait_s / hour, "h"),
        Figure(f"{name}: mean wait with limits", limits.mean_wait_s / hour, "h"),
        Figure(f"{name}: mean wait first in, first out", fifo.mean_wait_s / hour, "h"),
        Figure(f"{name}: longest wait with limits", limits.longest_wait_s / hour, "h"),
    ]
    if ours.coverage is None:
        return figures
    return [
        *figures,
        Figure(f"{name}: intervals that held", ours.coverage, "", at_least=0.7),
        Figure(f"{name}: intervals that are not too wide", ours.coverage, "", at_most=0.9),
    ]


def cases(entries: Sequence[Entry], seeds: int) -> Iterator[Case]:
    """All cases; random ones are drawn with their number as the seed."""
    yield from windows(entries)
    yield from shuffles(entries, seeds)
    yield from drawn(entries, seeds)
    yield from shapes(entries, max(1, seeds // 3))


def windows(entries: Sequence[Entry]) -> Iterator[Case]:
    for name, chosen in (
        ("first 3,000 jobs", Selection(most_jobs=3000)),
        ("first 2,000 jobs", Selection(most_jobs=2000)),
        ("all jobs", Selection()),
    ):
        yield _case(name, entries, chosen)
    busy = entries[-4438:]
    yield _case("last 3,000 jobs", busy[-3000:], Selection(from_day=0))
    yield _case("middle 3,000 jobs", busy[700:3700], Selection(from_day=0))
    yield _case("last 2,000 jobs", busy[-2000:], Selection(from_day=0))
    yield _case("jobs 1,500 to 3,500", busy[1500:3500], Selection(from_day=0))
    yield _case("jobs 2,000 to 4,000", busy[2000:4000], Selection(from_day=0))


def shuffles(entries: Sequence[Entry], seeds: int) -> Iterator[Case]:
    """The same arrivals with the jobs behind them shuffled, in blocks or one by one."""
    base = _case("", entries, Selection(most_jobs=3000))
    for size in (50, 1):
        for seed in range(seeds):
            dice = random.Random(seed)
            blocks = [base.jobs[start : start + size] for start in range(0, len(base.jobs), size)]
            dice.shuffle(blocks)
            mixed = [job for block in blocks for job in block]
            arrivals = [job.gang.queued_at for job in base.jobs]
            yield Case(f"shuffled in blocks of {size} ({seed})", base.machines, rearranged(mixed, arrivals))


def drawn(entries: Sequence[Entry], seeds: int) -> Iterator[Case]:
    """3,000 jobs drawn again with the arrivals of blocks of time drawn again, at the same load."""
    whole = _case("", entries, Selection())
    gaps = [b.gang.queued_at - a.gang.queued_at for a, b in zip(whole.jobs, whole.jobs[1:], strict=False)]
    for seed in range(seeds):
        dice = random.Random(1000 + seed)
        jobs: list[Job] = []
        steps: list[float] = []
        while len(jobs) < 3000:
            start = dice.randrange(len(gaps) - 100)
            jobs += whole.jobs[start : start + 100]
            steps += gaps[start : start + 100]
        dice.shuffle(jobs)
        yield stretched(f"drawn again ({seed})", Machines(2, 8, 1.0), jobs, steps, LOAD)


def shapes(entries: Sequence[Entry], seeds: int) -> Iterator[Case]:
    """Other clusters: larger ones with more work, smaller nodes, less and more load."""
    for name, nodes, gpus, load in (
        ("4 nodes of 4 GPUs", 4, 4, LOAD),
        ("4 nodes of 8 GPUs", 4, 8, LOAD),
        ("16 nodes of 8 GPUs", 16, 8, LOAD),
        ("2 nodes of 8 GPUs, load 0.7", 2, 8, 0.7),
        ("2 nodes of 8 GPUs, load 0.95", 2, 8, 0.95),
    ):
        trace = select(entries, Selection(), gpus, nodes * gpus)
        gaps = [b.gang.queued_at - a.gang.queued_at for a, b in zip(trace.jobs, trace.jobs[1:], strict=False)]
        for seed in range(seeds):
            dice = random.Random(2000 + seed)
            jobs: list[Job] = []
            steps: list[float] = []
            while len(jobs) < 4000:
                start = dice.randrange(len(gaps) - 100)
                jobs += trace.jobs[start : start + 100]
                steps += gaps[start : start + 100]
            yield stretched(f"{name} ({seed})", Machines(nodes, gpus, 1.0), jobs, steps, load)


def stretched(name: str, machines: Machines, jobs: Sequence[Job], gaps: Sequence[float], load: float) -> Case:
    """Jobs with these gaps between them, made longer or shorter so that the load is as wanted."""
    span_s = work(jobs) / (machines.num_gpus * load)
    scale = span_s / sum(gaps)
    at, arrivals = 0.0, []
    for gap in gaps:
        arrivals.append(at)
        at += gap * scale
    return Case(name, replace(machines, days=span_s / DAY_S), rearranged(jobs, arrivals))


def rearranged(jobs: Sequence[Job], arrivals: Sequence[float]) -> tuple[Job, ...]:
    return tuple(
        replace(job, gang=replace(job.gang, run_id=f"j{number}", title=f"j{number}", queued_at=at, seq=number))
        for number, (job, at) in enumerate(zip(jobs, arrivals, strict=True))
    )


def _case(name: str, entries: Sequence[Entry], chosen: Selection) -> Case:
    trace = select(entries, chosen, 8, 16)
    return Case(name, Machines(2, 8, trace.days), trace.jobs)


if __name__ == "__main__":
    main()
