"""The scheduler at scale: a pass over 10,000 gangs and 1,000 nodes, a synthetic and a real month, a long queue.

The real month is a trace: `python -m bench.scheduler --trace FILE` adds its figures, with and without time limits.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.measure import Figure, Workspace, median, report, temporary_workspace
from muster.control.estimates.runs import Estimates
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import Gang, Need, Node, Part, Rules, Running
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue
from muster.job.spec import JobSpec
from muster.simulation.drawing import draw
from muster.simulation.jobs import Job, Machines, Outcome
from muster.simulation.month import Month, make_jobs
from muster.simulation.simulator import FIFO, LIMITS_ALONE, MUSTER, SHORTEST, WITHOUT_LIMITS, Policy, simulate
from muster.simulation.trace import Selection, read, select

PLOT = Path(__file__).parents[1] / "docs" / "scheduler-month.svg"
SLEEP = JobSpec(command=("sleep", "100000"), compute="one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it work, not how fast is it")
    parser.add_argument("--trace", type=Path, help="a trace of a real cluster, as `muster simulate` reads it")
    parser.add_argument(
        "--only", choices=["passes", "month", "trace", "queue"], help="one part, written to its own file"
    )
    given = parser.parse_args()
    parts: dict[str, Callable[[], list[Figure]]] = {
        "passes": lambda: passes(3 if given.quick else 15),
        "month": lambda: months(given.quick),
        "trace": lambda: traces(given.trace, given.quick) if given.trace else [],
        "queue": lambda: long_queue(given.quick),
    }
    if given.only:
        report(f"scheduler-{given.only}", parts[given.only](), given.quick)
        return
    report("scheduler", [figure for part in parts.values() for figure in part()], given.quick)


def passes(rounds: int) -> list[Figure]:
    """A full pass on what the server holds in memory: the queue is kept, the nodes are counted again.

    Only a few jobs have a time limit; every length is an estimate, made before the pass for queued jobs and in the pass
    for running ones. CPU time is measured, so that other load on the machine does not count.
    """
    found = []
    for share in (0.0, 0.5, 0.9, 1.0):
        samples = []
        for seed in range(rounds):
            queue, nodes, held, used = crowded(share, seed)
            began = time.process_time()
            capacity = Capacity({"c": nodes})
            for item in held:
                capacity.hold(item, 0.0)
            schedule({"c": queue}, capacity, {"c": Rules(used=used)}, 0.0)
            samples.append((time.process_time() - began) * 1000)
        name = f"pass, 10,000 gangs on 1,000 nodes, {share:.0%} busy"
        found.append(median(name, samples, "ms", at_most=50))
    found.append(median("estimates of 10,000 gangs of 2,000 kinds", [estimating(seed) for seed in range(rounds)], "ms"))
    return found


def crowded(share: float, seed: int) -> tuple[Queue, list[Node], list[Running], dict[str, float]]:
    dice = random.Random(seed)
    known = learned(dice)
    gpus = tuple(str(index) for index in range(8))
    nodes = [Node(f"c-{index}", f"h{index}", "10.0.0.1", 96, gpus) for index in range(1000)]
    held = [
        Running(
            f"r{index}",
            f"r{index}",
            "c",
            (Part(node.name, node.host, 8, gpus),),
            since=-dice.uniform(0, 1e5),
            length=known.length((index % 40,)),
        )
        for index, node in enumerate(nodes)
        if dice.random() < share
    ]
    gangs = []
    for index in range(10_000):
        limit_s = dice.choice([600.0, 3600.0, 7200.0, 86400.0, None, None, None, None])
        gang = Gang(
            f"g{index}",
            f"g{index}",
            "c",
            Need(dice.choice([1, 1, 1, 2, 4, 8, 16, 64, 256]), dice.choice([1, 2, 4, 8]), dice.choice([None, 1, 2, 4])),
            priority=dice.randrange(3),
            queued_at=float(index) - 10_000,
            seq=index,
            user=f"u{index % 20}",
            limit_s=limit_s,
            length=known.length((index % 40,), limit_s),
        )
        gangs.append(gang)
    return Queue(gangs), nodes, held, {f"u{number}": dice.uniform(0, 1e6) for number in range(20)}


def learned(dice: random.Random) -> Estimates:
    known = Estimates()
    for number in range(2000):
        known.learn((number % 40, number % 2000), dice.lognormvariate(7.0, 2.0))
    return known


def estimating(seed: int) -> float:
    """The estimates that a new server makes once for a long queue."""
    known = learned(random.Random(seed))
    began = time.perf_counter()
    for index in range(10_000):
        known.length((index % 40, index % 2000))
    return (time.perf_counter() - began) * 1000


def months(is_quick: bool) -> list[Figure]:
    """The synthetic month under four policies."""
    month = Month(num_jobs=5000, num_nodes=50) if is_quick else Month()
    jobs = make_jobs(month)
    policies = (MUSTER, WITHOUT_LIMITS, FIFO, SHORTEST)
    figures, outcomes = measured("simulated month", month.machines, jobs, policies, at_most_s=90)
    if not is_quick:
        title = f"{month.num_jobs:,} jobs on {month.num_nodes:,} nodes in {month.days:g} days"
        PLOT.write_text(draw(title, month.machines, outcomes))
    ours, without, fifo, shortest = outcomes
    gain = (fifo.mean_wait_s - without.mean_wait_s) / (fifo.mean_wait_s - ours.mean_wait_s)
    return [
        *figures,
        Figure("mean wait against first-in-first-out", ours.mean_wait_s / fifo.mean_wait_s, "", at_most=1.0),
        Figure("mean wait against shortest-first", ours.mean_wait_s / shortest.mean_wait_s, "", at_most=1.0),
        Figure("use against first-in-first-out", ours.use / fifo.use, "", at_least=1.0),
        Figure("use against shortest-first", ours.use / shortest.use, "", at_least=1.0),
        Figure("longest wait against shortest-first", max(ours.waits_s) / max(shortest.waits_s), "", at_most=1.0),
        Figure("share of the gain that remains without limits", gain, "", at_least=0.5),
    ]


def traces(path: Path, is_quick: bool) -> list[Figure]:
    """A real trace on 2 nodes of 8 GPUs: its first 3,000 jobs, all of it, and with its order disturbed."""
    entries = read(path.read_text(), path.name).entries
    figures: list[Figure] = []
    for name, most in (("first 3,000 jobs", 3000), ("all jobs", None)):
        found = select(entries, Selection(most_jobs=most), 8, 16)
        machines = Machines(2, 8, found.days)
        some, outcomes = measured(name, machines, found.jobs, (WITHOUT_LIMITS, MUSTER, LIMITS_ALONE, FIFO, SHORTEST))
        figures += [*some, *targets(name, *outcomes[:2], outcomes[3])]
    found = select(entries, Selection(most_jobs=3000), 8, 16)
    machines = Machines(2, 8, found.days)
    for seed in range(1 if is_quick else 6):
        jobs = disturbed(found.jobs, seed)
        without, limits, fifo = (simulate(machines, jobs, policy) for policy in (WITHOUT_LIMITS, MUSTER, FIFO))
        figures += targets(f"jobs in another order ({seed})", without, limits, fifo)
    return figures


def targets(name: str, without: Outcome, limits: Outcome, fifo: Outcome) -> list[Figure]:
    return [
        Figure(f"{name}: mean wait without limits", without.mean_wait_s / 3600, "h", at_most=3.0),
        Figure(f"{name}: 90 % wait at most", without.wait_s(0.9) / 3600, "h", at_most=6.0),
        Figure(f"{name}: longest wait", max(without.waits_s) / 3600, "h", at_most=max(fifo.waits_s) / 3600),
        Figure(f"{name}: use", without.use, "", at_least=limits.use),
        Figure(f"{name}: start intervals that held", without.coverage or 0.0, "", at_least=0.7),
        Figure(f"{name}: start intervals not too wide", without.coverage or 0.0, "", at_most=0.9),
    ]


def disturbed(jobs: Sequence[Job], seed: int) -> list[Job]:
    """The same arrivals with the jobs behind them shuffled in blocks of 50."""
    blocks = [jobs[start : start + 50] for start in range(0, len(jobs), 50)]
    random.Random(seed).shuffle(blocks)
    mixed = [job for block in blocks for job in block]
    return [
        replace(job, gang=replace(job.gang, run_id=old.gang.run_id, queued_at=old.gang.queued_at, seq=old.gang.seq))
        for job, old in zip(mixed, jobs, strict=True)
    ]


def measured(
    name: str, machines: Machines, jobs: Sequence[Job], policies: Sequence[Policy], at_most_s: float | None = None
) -> tuple[list[Figure], list[Outcome]]:
    figures, outcomes = [], []
    for policy in policies:
        began = time.process_time()
        outcome = simulate(machines, jobs, policy)
        taken = time.process_time() - began
        outcomes.append(outcome)
        figures += [
            Figure(f"{name}, {policy.name}", taken, "s", at_most=at_most_s),
            Figure(f"  use, {policy.name}", outcome.use, ""),
            Figure(f"  mean wait of a GPU hour, {policy.name}", outcome.gpu_hour_wait_s / 3600, "h"),
            Figure(f"  mean wait, {policy.name}", outcome.mean_wait_s / 3600, "h"),
            Figure(f"  90 % wait at most, {policy.name}", outcome.wait_s(0.9) / 3600, "h"),
            Figure(f"  99 % wait at most, {policy.name}", outcome.wait_s(0.99) / 3600, "h"),
            Figure(f"  longest wait, {policy.name}", max(outcome.waits_s) / 3600, "h"),
        ]
    return figures, outcomes


def long_queue(is_quick: bool) -> list[Figure]:
    """`muster ps` and a submission with a short queue (a run holds the only node) and with a long one."""
    count = 500 if is_quick else 10_000
    with temporary_workspace() as workspace:
        workspace.client.create_cluster("one", options={"max_nodes": 1, "cpus": 1})
        fill(workspace, 121)
        short = measure(workspace, 5 if is_quick else 15)
        fill(workspace, count - 120)
        long = measure(workspace, 5 if is_quick else 15)
        workspace.client.change_cluster("one", state="stopped", now=True)
        while workspace.client.cluster("one").nodes:
            time.sleep(0.1)
    figures = []
    for name in short:
        figures.append(median(f"{name}, 120 queued", short[name], "ms"))
        figures.append(median(f"{name}, {count:,} queued", long[name], "ms"))
        ratio = statistics.median(long[name]) / statistics.median(short[name])
        figures.append(Figure(f"{name}: long queue against short", ratio, "", at_most=2.0))
    return figures


def fill(workspace: Workspace, count: int) -> None:
    for _ in range(count):
        workspace.client.submit(SLEEP, python=sys.executable)


def measure(workspace: Workspace, rounds: int) -> dict[str, list[float]]:
    muster = Path(sys.executable).with_name("muster")

    def ps() -> None:
        subprocess.run([muster, "ps"], cwd=workspace.folder, check=True, capture_output=True)

    def submit() -> None:
        workspace.client.submit(SLEEP, python=sys.executable)

    return {"muster ps": timed(ps, rounds), "a submission": timed(submit, rounds * 4)}


def timed(action: Callable[[], None], rounds: int) -> list[float]:
    samples = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        action()
        samples.append((time.perf_counter() - began) * 1000)
    return samples[1:]


if __name__ == "__main__":
    main()
