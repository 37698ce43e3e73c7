"""A workspace with its client, and the example in a size that a test can afford."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.integration.server.conftest import Site, site

__all__ = ["Site", "site"]

EXAMPLE = Path(__file__).parents[3] / "examples" / "resnet50"
BIN = Path(sys.executable).parent
TINY = ("--width", "4", "--image-size", "32", "--synthetic", "80", "--warmup-steps", "1")


def train(folder: Path, *arguments: str, ranks: int = 1, **env: str) -> subprocess.CompletedProcess[str]:
    """The example, outside Muster; a failure is shown."""
    return run_script(folder, EXAMPLE / "train.py", *TINY, *arguments, ranks=ranks, **env)


def run_script(
    folder: Path, script: Path, *arguments: str, ranks: int = 1, **env: str
) -> subprocess.CompletedProcess[str]:
    """A script, alone or under torchrun."""
    head = [sys.executable]
    if ranks > 1:
        head = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(ranks)]
    command = [*head, str(script), *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            # One that hangs says where.
            for process in (*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)):
                process.send_signal(signal.SIGABRT)
            out, err = child.communicate(timeout=30)
    assert child.returncode == 0, out + err
    return subprocess.CompletedProcess(command, child.returncode, out, err)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder
