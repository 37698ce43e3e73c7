"""`python -m tests.chaos.soak`: thousands of small runs, while memory, descriptors, log and disk are watched."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from tests.chaos.campaign import ROOT, commit
from tests.chaos.stage import Stage, home

from muster.job.explain import make_spec
from muster.wire import states

RESULTS = ROOT / "bench" / "results" / "soak.json"
WAITING = 40
"""So many runs are in the queue at a time."""
KEPT = 100
"""So many are kept; older ones are removed, as somebody does who keeps a workspace for years."""


@dataclass(frozen=True)
class Sample:
    """What the server and the agents have taken."""

    runs: int
    seconds: float
    server_mb: float
    agents_mb: float
    descriptors: int
    log_mb: float
    """The database's write-ahead log."""
    disk_mb: float
    processes: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with home() as folder:
        stage = Stage(folder)
        stage.open()
        try:
            samples = soak(stage, options.runs, options.minutes * 60)
        finally:
            left = stage.close()
    trouble = [*left, *grown(samples)]
    figures = {"commit": commit(), "runs": samples[-1].runs, "seconds": samples[-1].seconds, "trouble": trouble}
    RESULTS.write_text(json.dumps({**figures, "samples": [asdict(item) for item in samples]}, indent=1) + "\n")
    print(f"{samples[-1].runs} runs in {samples[-1].seconds:.0f} s: {'; '.join(trouble) or 'flat'}")
    return 1 if trouble else 0


def soak(stage: Stage, most_runs: int, most_s: float) -> list[Sample]:
    """Submit, wait, remove; a sample for every twentieth of the time."""
    spec = make_spec({"command": "echo here; echo 1 > outputs/one"})
    began, done, samples = time.monotonic(), 0, list[Sample]()
    open_runs: list[str] = []
    ended: list[str] = []
    while done < most_runs and time.monotonic() - began < most_s:
        while len(open_runs) < WAITING and done + len(open_runs) < most_runs:
            open_runs.append(stage.client.submit(spec, python=sys.executable).id)
        stage.wait_for_end(open_runs[0])
        active = {run.id for run in stage.client.runs(limit=2 * WAITING) if run.status not in states.TERMINAL}
        finished = [run for run in open_runs if run not in active]
        for run in finished:
            if (status := stage.client.run(run).status) != states.COMPLETED:
                raise RuntimeError(f"{run} is {status}")
        done, ended = done + len(finished), [*ended, *finished]
        open_runs = [run for run in open_runs if run in active]
        while len(ended) > KEPT:
            stage.client.remove(ended.pop(0))
        share = max(done / most_runs, (time.monotonic() - began) / most_s)
        if share * 20 >= len(samples) + 1:
            samples.append(sample(stage, done, time.monotonic() - began))
            print(samples[-1], flush=True)
    samples.append(sample(stage, done, time.monotonic() - began))
    return samples


def sample(stage: Stage, done: int, seconds: float) -> Sample:
    server = stage.server()
    agents = [item for item in psutil.process_iter(["cmdline"]) if _is_agent(item, stage.folder)]
    place = stage.folder / ".muster"
    log = place / "server/muster.db-wal"
    disk = sum(path.lstat().st_blocks * 512 for path in place.rglob("*") if path.exists())
    return Sample(
        done,
        round(seconds, 1),
        round(server.memory_info().rss / 1e6, 1),
        round(sum(item.memory_info().rss for item in agents) / 1e6, 1),
        server.num_fds() + sum(item.num_fds() for item in agents),
        round(log.stat().st_size / 1e6, 2) if log.exists() else 0.0,
        round(disk / 1e6, 1),
        len(server.children(recursive=True)) + sum(len(item.children(recursive=True)) for item in agents),
    )


def _is_agent(process: psutil.Process, folder: Path) -> bool:
    words = process.info["cmdline"] or []
    return "muster.agent" in words and str(folder) in words[-1] and process.pid != os.getpid()


def grown(samples: list[Sample]) -> list[str]:
    """What the second half took noticeably more of than the first did after its beginning."""
    if len(samples) < 8:
        return []
    middle = len(samples) // 2
    early, late = samples[middle // 2 : middle], samples[middle:]
    found = []
    for name, slack in (("server_mb", 15), ("agents_mb", 15), ("descriptors", 12), ("log_mb", 8), ("disk_mb", 40)):
        before, after = (max(getattr(item, name) for item in part) for part in (early, late))
        if after > before * 1.1 + slack:
            found.append(f"{name} grew from {before} to {after}")
    return found


if __name__ == "__main__":
    sys.exit(main())
