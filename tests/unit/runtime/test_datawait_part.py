"""The measure of a rank's wait for data: its loaders are timed without a change to the script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.agent.run import runtime_copy
from muster.control.datawait import MEASURES, waited
from muster.defaults import RANK_HOOKS

TORCH = """
class _BaseDataLoaderIter:
    def __init__(self, times):
        self.times = iter(times)
    def __iter__(self):
        return self
    def __next__(self):
        return clock.pass_by(next(self.times))
"""
CLOCK = """
import time
class clock:
    now = 100.0
    @classmethod
    def pass_by(cls, seconds):
        cls.now += seconds
        return seconds
time.perf_counter = lambda: clock.now
import builtins
builtins.clock = clock
from torch.utils.data.dataloader import _BaseDataLoaderIter as Loader
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The folder as an agent lays it out, beside a package that stands for PyTorch and a clock that a test moves."""
    runtime_copy.install(tmp_path / "node" / "1")
    package = tmp_path / "packages" / "torch" / "utils" / "data"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parents[1]):
        (folder / "__init__.py").write_text("")
    (package / "dataloader.py").write_text(TORCH)
    return tmp_path / "node" / "1"


def told(runtime: Path, code: str, **changes: str) -> list[dict[str, float]]:
    """What a rank wrote of its wait: the pairs, in order."""
    file = runtime.parent / "events.jsonl"
    packages = runtime.parents[1] / "packages"
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{runtime}:{packages}",
        "MUSTER_HOOKS": ",".join(RANK_HOOKS),
        "MUSTER_EVENTS_FILE": str(file),
    }
    command = [sys.executable, "-c", CLOCK + code]
    done = subprocess.run(command, env={**env, **changes}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [{wait["name"]: wait["value"], rest["name"]: rest["value"]} for wait, rest in pairs]


def test_the_time_in_a_loader_is_told_while_it_runs_and_at_the_end(runtime: Path) -> None:
    found = told(runtime, "for _ in Loader([1, 2, 6, 3]): clock.pass_by(2)")
    wait, rest = MEASURES[1]
    assert found == [{wait: 9.0, rest: 4.0}, {wait: 12.0, rest: 8.0}]
    assert waited(found[-1]) == (0.6, 20.0)


def test_loaders_are_counted_together_and_a_loader_in_a_loader_once(runtime: Path) -> None:
    outer = "class Outer(Loader):\n    def __next__(self): return super().__next__()\n"
    code = f"{outer}list(Loader([1])); clock.pass_by(2); list(Outer([3]))"
    assert waited(told(runtime, code)[-1]) == (4 / 6, 6.0)


@pytest.mark.parametrize(
    "code",
    [
        "list(Loader([0.2]))",
        "import threading; t = threading.Thread(target=lambda: list(Loader([60]))); t.start(); t.join()",
    ],
)
def test_what_is_short_or_fetched_ahead_by_a_thread_is_not_told(runtime: Path, code: str) -> None:
    assert told(runtime, code) == []


def test_a_child_tells_its_own_wait_and_a_missing_folder_ends_no_script(runtime: Path) -> None:
    fork = "list(Loader([20]))\nimport os\nif os.fork() == 0:\n    list(Loader([11]))\n    os._exit(0)\nos.wait()"
    wait, _ = MEASURES[1]
    assert [pair[wait] for pair in told(runtime, fork)] == [20.0, 11.0, 20.0]
    assert told(runtime, "list(Loader([20]))", MUSTER_EVENTS_FILE="/nowhere/x")[3:] == []
