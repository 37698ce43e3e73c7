"""Runs that share a GPU, on a machine whose one GPU exists by name alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.cli.conftest import cli

__all__ = ["cli"]

MEET = """
import os, sys, time
mine, other = sys.argv[1:]
open(mine, "w").close()
deadline = time.monotonic() + 60
while not os.path.exists(other):
    assert time.monotonic() < deadline, "the other run did not start beside this one"
    time.sleep(0.05)
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], "of which", os.environ["MUSTER_GPU_SHARE"])
"""


def test_two_runs_with_half_a_gpu_each_run_side_by_side(cli: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    folder = Path(cli.folder)
    cli.script("meet.py", MEET)
    first, second = str(folder / "first"), str(folder / "second")
    done = cli("run", "meet.py", "--gpus-per-node", "0.5", "--detach", "--", first, second)
    assert done.returncode == 0, done.stderr
    done = cli("run", "meet.py", "--gpus-per-node", "0.5", "--", second, first)
    assert done.returncode == 0, done.stderr
    assert "sees 7 of which 0.5" in done.stdout
    refused = cli("run", "meet.py", "--gpus-per-node", "1.5", "--", first, second)
    assert refused.returncode != 0 and "neither a whole number nor a part of one GPU" in refused.stderr
