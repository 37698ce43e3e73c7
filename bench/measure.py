"""What the benchmarks share: a temporary workspace, interleaved rounds, a table and a JSON file."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.workspace import create_workspace
from muster.wire.codec import to_json
from muster.wire.runs import RunView

RESULTS = Path(__file__).parent / "results"


def quick(description: str | None) -> bool:
    """Read the command line that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it work, not how fast is it")
    return bool(parser.parse_args().quick)


@dataclass(frozen=True)
class Workspace:
    """A temporary workspace with a running server."""

    folder: Path
    client: Client


@contextmanager
def temporary_workspace() -> Iterator[Workspace]:
    """A workspace with its server; the warm-up round of a benchmark starts the agents."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        client = connect(create_workspace(folder, "bench"))
        try:
            yield Workspace(folder, client)
        finally:
            client.shutdown(force=True)
            _wait_for_end(folder)


def _wait_for_end(folder: Path) -> None:
    """Wait until the server has ended with its agents; end what is left even if that fails."""
    deadline = time.monotonic() + 20
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        print(f"ended by force: {process}")
        process.kill()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes that name the folder in their command line or environment."""
    needle = str(folder).encode()
    found = []
    for process in psutil.process_iter():
        try:
            in_proc = Path("/proc") / str(process.pid)
            if needle in (in_proc / "cmdline").read_bytes() + b"\0" + (in_proc / "environ").read_bytes():
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return [process for process in found if process.pid != os.getpid()]


def wait_for_run(client: Client, run_id: str) -> RunView:
    """The run once it has ended well; anything else is an error."""
    for event, _ in client.stream(run_id, logs=False, metrics=False):
        if event.kind == "end":
            break
    run = client.run(run_id)
    if run.status != "Completed":
        raise SystemExit(f"run {run_id} ended as {run.status}: {json.dumps(to_json(run.verdict), indent=2)}")
    return run


def log_lines(client: Client, run: RunView) -> list[list[str]]:
    """What each rank printed, line by line."""
    ranks = run.attempts[-1].ranks
    return [client.read_file(run.id, rank.log).decode().splitlines() for rank in ranks]


def interleave(rounds: int, ways: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure every way once per round, so that other load affects all of them; one round is for warming up."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, measure in ways.items():
            value = measure()
            if number > 0:
                samples[name].append(value)
    return samples


@dataclass(frozen=True)
class Figure:
    """One measured figure, with its target where it has one."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    samples: Sequence[float] = ()

    @property
    def met(self) -> bool | None:
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None


def median(name: str, samples: Sequence[float], unit: str, **target: float) -> Figure:
    return Figure(name, statistics.median(samples), unit, samples=samples, **target)


def report(bench: str, figures: Sequence[Figure], is_quick: bool) -> None:
    """Print the table and write the JSON file."""
    print(f"\n{bench}{' (quick)' if is_quick else ''}")
    for figure in figures:
        target = ""
        if figure.at_most is not None:
            target = f"at most {figure.at_most:g}"
        elif figure.at_least is not None:
            target = f"at least {figure.at_least:g}"
        verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
        print(f"  {figure.name:<52} {figure.value:>10.3f} {figure.unit:<8} {target:<14} {verdict}")
    RESULTS.mkdir(exist_ok=True)
    document = {
        "bench": bench,
        "quick": is_quick,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }
    (RESULTS / f"{bench}.json").write_text(json.dumps(document, indent=2) + "\n")


def machine() -> dict[str, Any]:
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpus": os.cpu_count(),
        "cpu": names[0] if names else platform.machine(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "load_1min": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("muster", "torch", "sqlalchemy", "fastapi", "uvicorn"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
