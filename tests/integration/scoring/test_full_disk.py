"""Batch scoring whose disk is full: it ends and says so, instead of waiting for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = "/dev/full"
"""Whatever is written there finds no space."""


@pytest.mark.parametrize(
    ("full", "said"),
    [
        ("out/.predictions.csv.tmp", "the results cannot be written: [Errno 28]"),
        ("tmp/scored/results.jsonl", "the results cannot be kept: [Errno 28]"),
    ],
)
def test_a_full_disk_ends_the_scoring(tmp_path: Path, full: str, said: str) -> None:
    (tmp_path / "data").mkdir()
    for number in range(4):
        (tmp_path / "data" / f"{number}.txt").write_text("x")
    (tmp_path / "score.py").write_text("def run(paths):\n    return ['x' * 20_000 for _ in paths]\n")
    (tmp_path / full).parent.mkdir(parents=True)
    (tmp_path / full).symlink_to(FULL)
    done = subprocess.run(
        [sys.executable, "-m", "muster.scoring.batch", json.dumps({"script": "score.py", "mini_batch_size": 1})],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": "tmp", "MUSTER_INPUT_data": "data", "MUSTER_OUTPUT_result": "out"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1 and f"muster: given up: {said}" in done.stderr, done.stdout + done.stderr
    assert not (tmp_path / "out" / "predictions.csv").exists()
