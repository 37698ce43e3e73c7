"""`muster explain`: the verdict on logs from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from muster.cli.main import app

LOG = 'epoch 1\nTraceback (most recent call last):\n  File "train.py", line 3, in f\n    g()\nValueError: no\n'


def test_a_log_is_explained(tmp_path: Path) -> None:
    (tmp_path / "slurm-7.out").write_text(LOG)
    told = CliRunner().invoke(app, ["explain", str(tmp_path / "slurm-7.out")])
    assert told.output.startswith("exception\n  rank 0: ValueError: no\n")
    assert "next: train.py line 3, in f: `g()`." in told.output


def test_for_programs_and_from_a_pipe(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["explain", "-", "--json"], input=LOG)
    assert json.loads(told.output)["code"] == "exception"
    killed = CliRunner().invoke(app, ["explain", "-", "--json", "--exit-code", "139"], input="step 1\n")
    assert json.loads(killed.output)["code"] == "signal"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["explain", str(tmp_path / "nope.log")])
    assert told.exit_code != 0
    assert "nope.log cannot be read" in told.output


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.log").write_text(text)
    assert "is empty" in CliRunner().invoke(app, ["explain", str(tmp_path / "a.log")]).output
