"""Listing runs while 10,000 are queued, against an empty queue; and listing all of them, page by page."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from bench.measure import Figure, Workspace, interleave, median, quick, report, temporary_workspace, wait_for_run
from muster.job.spec import JobSpec

SPEC = JobSpec(command=("true",))
PAGE = 20


def main() -> None:
    is_quick = quick(__doc__)
    count, rounds = (500, 3) if is_quick else (10_000, 7)
    with temporary_workspace() as empty, temporary_workspace() as full:
        for workspace in (empty, full):
            for _ in range(PAGE + 1):
                run_id = workspace.client.submit(SPEC, python=sys.executable).id
            wait_for_run(workspace.client, run_id)
        fill(full, count)
        samples = interleave(rounds, {"empty": lambda: ps(empty), "full": lambda: ps(full)})
        began = time.perf_counter()
        listed = len(full.client.runs())
        whole_s = time.perf_counter() - began
    if listed != count + PAGE + 1:
        raise SystemExit(f"{listed} of {count + PAGE + 1} runs were listed")
    ratio = statistics.median(samples["full"]) / statistics.median(samples["empty"])
    figures = [
        median("muster ps with an empty queue", samples["empty"], "s"),
        median(f"muster ps with {count:,} queued runs", samples["full"], "s"),
        Figure("with the queue, times without", ratio, "times", at_most=1.2),
        Figure(f"every one of {listed:,} runs, by pages", whole_s, "s"),
    ]
    report("listings", figures, is_quick)


def fill(workspace: Workspace, count: int) -> None:
    """Submit runs to a cluster that starts none."""
    workspace.client.create_cluster("idle", options={"max_nodes": 1})
    workspace.client.change_cluster("idle", state="stopped")
    waiting = JobSpec(command=("true",), compute="idle")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: workspace.client.submit(waiting, python=sys.executable).id, range(count)))


def ps(workspace: Workspace) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", "ps"], cwd=workspace.folder, capture_output=True, text=True, check=True
    )
    if len(done.stdout.splitlines()) != PAGE + 1:
        raise SystemExit(f"muster ps printed {len(done.stdout.splitlines())} lines")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
