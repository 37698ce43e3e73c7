"""Logs: printing 200 MB against a plain file; nothing may be lost."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Figure, Workspace, interleave, median, quick, report, temporary_workspace, wait_for_run
from muster.job.spec import JobSpec

LINE = "x" * 99
# The program times itself, so that its start does not count; its last line has the time.
PROGRAM = f"""
import time
began = time.perf_counter()
for _ in range({{count}}):
    print({LINE!r})
print(time.perf_counter() - began)
"""


def main() -> None:
    is_quick = quick(__doc__)
    rounds = 2 if is_quick else 5
    with temporary_workspace() as workspace:
        figures = printing(workspace, 20 if is_quick else 200, rounds)
    report("logs", figures, is_quick)


def printing(workspace: Workspace, megabytes: int, rounds: int) -> list[Figure]:
    count = megabytes * 1_000_000 // (len(LINE) + 1)
    program = PROGRAM.format(count=count)
    samples = interleave(
        rounds,
        {"file": lambda: to_a_file(workspace, program), "muster": lambda: by_muster(workspace, program, count)},
    )
    slower = statistics.median(samples["muster"]) / statistics.median(samples["file"]) - 1
    return [
        median(f"{megabytes} MB to a file", samples["file"], "s"),
        median(f"{megabytes} MB under Muster", samples["muster"], "s"),
        Figure("slower under Muster", 100 * slower, "%", at_most=10),
    ]


def to_a_file(workspace: Workspace, program: str) -> float:
    # Unbuffered, as the output of ranks is (PYTHONUNBUFFERED=1 is part of the launch contract).
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with tempfile.NamedTemporaryFile(dir=workspace.folder) as log:
        subprocess.run([sys.executable, "-c", program], check=True, stdout=log, stderr=log, env=environment)
        return float(Path(log.name).read_bytes().rsplit(b"\n", 2)[-2])


def by_muster(workspace: Workspace, program: str, count: int) -> float:
    client = workspace.client
    run_id = client.submit(JobSpec(command=("python", "-c", program)), python=sys.executable).id
    run = wait_for_run(client, run_id)
    kept = client.read_file(run_id, run.attempts[-1].ranks[0].log)
    printed = f"{LINE}\n".encode() * count
    if kept[: len(printed)] != printed:
        raise SystemExit(f"run {run_id}: what is kept ({len(kept)} bytes) is not what was printed")
    client.remove(run_id)
    return float(kept[len(printed) :])


if __name__ == "__main__":
    main()
