"""`muster simulate`: what is wrong is said before anything is simulated, and what is printed fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from muster.cli.main import app

MONTH = "start;length;gpus\n" + "".join(f"{number * 600};90m;{1 + number % 2}\n" for number in range(40))


@pytest.fixture
def month(tmp_path: Path) -> Path:
    path = tmp_path / "month.csv"
    path.write_bytes((MONTH + "40000;60;0\n").encode("utf-8-sig"))
    return path


def test_policies_are_tried_once_and_what_is_left_out_is_said(month: Path) -> None:
    given = ["simulate", "--trace", str(month), "--nodes", "1", "--policy", "fifo", "--policy", "fifo"]
    shown = CliRunner().invoke(app, given)
    assert shown.exit_code == 0
    assert shown.stdout.count("first in, first out") == 3, "the table, use over time, and waits"
    assert "left out: 1 job without GPUs" in shown.output
    assert max(map(len, shown.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--plot", "nowhere/month.svg"], "there is no folder nowhere"),
        (["--plot", "month.png"], "only .svg files are drawn"),
        (["--policy", "sjf"], "there is no such policy"),
    ],
)
def test_what_cannot_be_is_said_at_once(month: Path, given: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["simulate", "--trace", str(month), *given])
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())


@pytest.mark.parametrize("option", [["--nodes", "100000000"], ["--days", "0"], ["--longest-days", "0"]])
def test_figures_that_make_no_sense_are_refused(month: Path, option: list[str]) -> None:
    found = CliRunner().invoke(app, ["simulate", "--trace", str(month), *option])
    assert found.exit_code == 2
    assert option[0] in found.output
