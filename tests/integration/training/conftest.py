"""A workspace with its client, and the example in a size that a test can afford."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.server.conftest import Site, site

__all__ = ["Site", "site"]

EXAMPLE = Path(__file__).parents[3] / "examples" / "resnet50"
BIN = Path(sys.executable).parent
TINY = ("--width", "4", "--image-size", "32", "--synthetic", "80", "--warmup-steps", "1")


def train(folder: Path, *arguments: str, ranks: int = 1, **env: str) -> subprocess.CompletedProcess[str]:
    """The example, outside Muster; a failure is shown."""
    head = [sys.executable]
    if ranks > 1:
        head = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*head, str(EXAMPLE / "train.py"), *TINY, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder
