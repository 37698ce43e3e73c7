"""`python -m tests.chaos.soak`: thousands of small runs, while memory, descriptors, log and disk are watched."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from tests.chaos.campaign import ROOT, commit
from tests.chaos.stage import Stage, home

from muster.job.explain import make_spec
from muster.wire import states

RESULTS = ROOT / "bench" / "results" / "soak.json"
WAITING = 40
"""So many runs are in the queue at a time, at most."""
_SPREAD = 0.95
"""Runs are submitted in this share of the time, so that the last ones end within it."""
_PAUSE_S = 0.2
_SAMPLES = 60
MOST = {"server_mb": 60.0, "agents_mb": 40.0, "descriptors": 20.0, "log_mb": 16.0, "disk_mb": 80.0, "processes": 8.0}
"""How much more of each there may be after 10,000 runs."""
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
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the figures are written")
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
    rates = growth(samples)
    figures["growth"] = {name: asdict(rate) for name, rate in rates.items()}
    options.results.write_text(json.dumps({**figures, "samples": [asdict(item) for item in samples]}, indent=1) + "\n")
    for name, rate in rates.items():
        print(f"{name:12} {rate.least:8.1f} to {rate.most:8.1f}   {rate.per_1000_runs:+8.2f} per 1,000 runs", end="")
        print(f"   {rate.per_hour:+8.2f} per hour")
    print(f"{samples[-1].runs} runs in {samples[-1].seconds:.0f} s: {'; '.join(trouble) or 'flat'}")
    return 1 if trouble else 0


def soak(stage: Stage, most_runs: int, most_s: float) -> list[Sample]:
    """Submit, wait, remove; runs are spread over the time, with a sample for every sixtieth of it."""
    spec = make_spec({"command": "echo here; echo 1 > outputs/one"})
    began, done, samples = time.monotonic(), 0, list[Sample]()
    open_runs: list[str] = []
    ended: list[str] = []
    while done < most_runs and time.monotonic() - began < most_s:
        due = min(most_runs, 1 + int(most_runs * (time.monotonic() - began) / (most_s * _SPREAD)))
        while len(open_runs) < WAITING and done + len(open_runs) < due:
            open_runs.append(stage.client.submit(spec, python=sys.executable).id)
        if not open_runs:
            time.sleep(_PAUSE_S)
            continue
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
        if share * _SAMPLES >= len(samples) + 1:
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


@dataclass(frozen=True)
class Growth:
    """How something went on once the beginning was over: its range, and the slope of the line through its samples."""

    least: float
    most: float
    per_1000_runs: float
    per_hour: float


def growth(samples: Sequence[Sample]) -> dict[str, Growth]:
    """Of everything that is watched; the first quarter, in which caches fill, is left out."""
    late = samples[len(samples) // 4 :]
    if len(late) < 3:
        return {}
    runs, hours = [item.runs / 1000 for item in late], [item.seconds / 3600 for item in late]
    found = {}
    for name in MOST:
        values = [float(getattr(item, name)) for item in late]
        slopes = (round(statistics.linear_regression(along, values).slope, 3) for along in (runs, hours))
        found[name] = Growth(min(values), max(values), *slopes)
    return found


def grown(samples: Sequence[Sample]) -> list[str]:
    """What would be noticeably more after 10,000 runs than after the first quarter, if it went on as it did."""
    return [
        f"{name} grows by {rate.per_1000_runs:g} in 1,000 runs"
        for name, rate in growth(samples).items()
        # In a short soak a line through a few samples says little: what it came to here must be noticeable too.
        if rate.per_1000_runs * 10 > MOST[name] and rate.most - rate.least > MOST[name] / 3
    ]


if __name__ == "__main__":
    sys.exit(main())
