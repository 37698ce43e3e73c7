"""Jobs of `true` from submission to Completed, all durable, against a bare loop of spawn, wait and three commits.

`--against CHECKOUT` also measures the server's CPU time with another checkout of Muster, in turns.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from bench.measure import Figure, Workspace, interleave, median, report, temporary_workspace
from muster.job.spec import JobSpec

SPEC = JobSpec(command=("true",))
SUBMITTERS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it work, not how fast is it")
    parser.add_argument("--against", type=Path, help="another checkout, to compare the server's processor time with")
    parser.add_argument("--processor-time", type=int, metavar="JOBS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.processor_time:
        print(processor_ms(given.processor_time))
        return
    is_quick = given.quick
    count = 100 if is_quick else 1000
    if given.against:
        report("queue-processor", compared(given.against, 100 if is_quick else 200, 1 if is_quick else 4), is_quick)
        return
    with temporary_workspace() as workspace:
        samples = interleave(
            1 if is_quick else 3,
            {"bare": lambda: bare_loop(workspace.folder, count), "muster": lambda: by_muster(workspace, count)},
        )
    rate = statistics.median(samples["muster"])
    figures = [
        median(f"bare loop, {count} jobs", samples["bare"], "jobs/s"),
        median(f"Muster, {count} jobs", samples["muster"], "jobs/s", at_least=60),
        Figure("Muster against the bare loop", rate / statistics.median(samples["bare"]), "", at_least=0.5),
    ]
    report("queue", figures, is_quick)


def compared(other: Path, count: int, rounds: int) -> list[Figure]:
    """The server's CPU time per job, here and in another checkout."""
    folders = {"this": Path(__file__).parents[1], "other": other}
    ways = {name: lambda folder=folder: measured_in(folder, count) for name, folder in folders.items()}
    samples = interleave(rounds, ways)
    ratio = statistics.median(samples["this"]) / statistics.median(samples["other"])
    return [
        *(median(f"the server's processor time per job, {name} checkout", samples[name], "ms") for name in folders),
        Figure("this against the other", ratio, "", at_most=1.1),
    ]


def measured_in(folder: Path, count: int) -> float:
    """Measure in a process that imports the checkout; the script is this one, whatever the checkout has."""
    paths = os.pathsep.join((str(folder / "src"), str(folder)))
    command = [sys.executable, __file__, "--processor-time", str(count)]
    done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, check=True)
    return float(done.stdout.split()[-1])


def processor_ms(count: int) -> float:
    """CPU time of jobs one after another, after a few to warm up; older checkouts answer with dictionaries."""
    with temporary_workspace() as workspace:
        run_all(workspace, 50)
        health = workspace.client.health()
        server = psutil.Process(health["pid"] if isinstance(health, dict) else health.pid)
        before = sum(server.cpu_times()[:2])
        run_all(workspace, count)
        return 1000 * (sum(server.cpu_times()[:2]) - before) / count


def run_all(workspace: Workspace, count: int) -> None:
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(lambda _: workspace.client.submit(SPEC, python=sys.executable), range(count)))
    while True:
        health = workspace.client.health()
        if not (health["active_runs"] if isinstance(health, dict) else health.active_runs):
            return
        time.sleep(0.05)


def bare_loop(folder: Path, count: int) -> float:
    """For each job a row, its start and its end, each as a durable commit, and its log in a file."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        database = sqlite3.connect(Path(scratch) / "jobs.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, command TEXT, status TEXT, exit_code INTEGER)")
        began = time.perf_counter()
        for job in range(count):
            database.execute("INSERT INTO jobs VALUES (?, 'true', 'Queued', NULL)", (job,))
            with (Path(scratch) / f"{job}.txt").open("wb") as log:
                process = subprocess.Popen(["true"], stdout=log, stderr=log)
            database.execute("UPDATE jobs SET status = 'Running' WHERE id = ?", (job,))
            code = process.wait()
            database.execute("UPDATE jobs SET status = 'Completed', exit_code = ? WHERE id = ?", (code, job))
        taken = time.perf_counter() - began
        database.close()
    return count / taken


def by_muster(workspace: Workspace, count: int) -> float:
    client = workspace.client
    began = time.perf_counter()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        submitted = set(pool.map(lambda _: client.submit(SPEC, python=sys.executable).id, range(count)))
    while (health := client.health()).active_runs:
        time.sleep(0.05)
        if time.perf_counter() - began > 600:
            raise SystemExit(f"{health.active_runs} of {count} runs have not ended after 600 s")
    taken = time.perf_counter() - began
    completed = {run.id for run in client.runs(limit=count) if run.status == "Completed"}
    if len(submitted) != count or completed != submitted:
        raise SystemExit(f"of {count} runs {len(submitted)} were accepted and {len(completed & submitted)} completed")
    return count / taken


if __name__ == "__main__":
    main()
