"""Jobs of `true` from submission to Completed, all durable, against a bare loop of spawn, wait and three commits."""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.measure import Figure, Workspace, interleave, median, quick, report, temporary_workspace
from muster.job.spec import JobSpec

SPEC = JobSpec(command=("true",))
SUBMITTERS = 4


def main() -> None:
    is_quick = quick(__doc__)
    count = 100 if is_quick else 1000
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


def bare_loop(folder: Path, count: int) -> float:
    """Each job: a row, its start, its end, each one a durable commit; its log in a file."""
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
