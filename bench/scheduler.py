"""The scheduler at scale: a pass over 10,000 gangs and 1,000 nodes, a simulated month, a server with a long queue."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import Figure, Workspace, median, quick, report, temporary_workspace
from bench.monthplot import draw
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import Gang, Need, Node, Part, Running
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue
from muster.control.scheduling.simulate import Month, Outcome, make_jobs, simulate
from muster.job.spec import JobSpec

PLOT = Path(__file__).parents[1] / "docs" / "scheduler-month.svg"
SLEEP = JobSpec(command=("sleep", "100000"), compute="one")


def main() -> None:
    is_quick = quick(__doc__)
    figures = [*passes(3 if is_quick else 15), *months(is_quick), *long_queue(is_quick)]
    report("scheduler", figures, is_quick)


def passes(rounds: int) -> list[Figure]:
    """A full pass, from what the server holds in memory: the queue is there, the nodes are counted anew."""
    found = []
    for share in (0.0, 0.5, 0.9, 1.0):
        samples = []
        for seed in range(rounds):
            queue, nodes, held = crowded(share, seed)
            began = time.perf_counter()
            capacity = Capacity({"c": nodes})
            for item in held:
                capacity.hold(item)
            schedule({"c": queue}, capacity, {}, 0.0)
            samples.append((time.perf_counter() - began) * 1000)
        name = f"pass, 10,000 gangs on 1,000 nodes, {share:.0%} busy"
        found.append(median(name, samples, "ms", at_most=50))
    return found


def crowded(share: float, seed: int) -> tuple[Queue, list[Node], list[Running]]:
    dice = random.Random(seed)
    gpus = tuple(str(index) for index in range(8))
    nodes = [Node(f"c-{index}", f"h{index}", "10.0.0.1", 96, gpus) for index in range(1000)]
    held = [
        Running(f"r{index}", f"r{index}", "c", (Part(node.name, node.host, 8, gpus),), until=dice.uniform(0, 1e5))
        for index, node in enumerate(nodes)
        if dice.random() < share
    ]
    gangs = [
        Gang(
            f"g{index}",
            f"g{index}",
            "c",
            Need(dice.choice([1, 1, 1, 2, 4, 8, 16, 64, 256]), dice.choice([1, 2, 4, 8]), dice.choice([None, 1, 2, 4])),
            priority=dice.randrange(3),
            queued_at=float(index),
            seq=index,
            limit_s=dice.choice([600.0, 3600.0, 7200.0, 86400.0, None]),
        )
        for index in range(10_000)
    ]
    return Queue(gangs), nodes, held


def months(is_quick: bool) -> list[Figure]:
    """The same month under three policies."""
    month = Month(num_jobs=5000, num_nodes=50) if is_quick else Month()
    jobs = make_jobs(month)
    figures, outcomes = [], []
    for policy in ("muster", "fifo", "shortest"):
        began = time.perf_counter()
        outcome = simulate(month, jobs, policy)  # type: ignore[arg-type]
        taken = time.perf_counter() - began
        outcomes.append(outcome)
        figures.append(Figure(f"simulated month, {policy}", taken, "s", at_most=90))
        figures += [
            Figure(f"  utilisation, {policy}", outcome.utilisation, ""),
            Figure(f"  mean wait, {policy}", outcome.mean_wait_s / 3600, "h"),
            Figure(f"  90 % wait at most, {policy}", outcome.wait_s(0.9) / 3600, "h"),
            Figure(f"  99 % wait at most, {policy}", outcome.wait_s(0.99) / 3600, "h"),
            Figure(f"  longest wait, {policy}", max(outcome.waits_s) / 3600, "h"),
        ]
    if not is_quick:
        PLOT.write_text(draw(month, outcomes))
    return [*figures, *comparison(outcomes)]


def comparison(outcomes: list[Outcome]) -> list[Figure]:
    ours, fifo, shortest = outcomes
    return [
        Figure("mean wait against first-in-first-out", ours.mean_wait_s / fifo.mean_wait_s, "", at_most=1.0),
        Figure("mean wait against shortest-first", ours.mean_wait_s / shortest.mean_wait_s, "", at_most=1.0),
        Figure("utilisation against first-in-first-out", ours.utilisation / fifo.utilisation, "", at_least=1.0),
        Figure("utilisation against shortest-first", ours.utilisation / shortest.utilisation, "", at_least=1.0),
        Figure("longest wait against shortest-first", max(ours.waits_s) / max(shortest.waits_s), "", at_most=1.0),
    ]


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
