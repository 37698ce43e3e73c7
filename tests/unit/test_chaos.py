"""What the harness of faults adds up: ledgers of several lanes, growth in a soak, deadlines on a crowded machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import lanes, report, waiting
from tests.chaos.soak import Sample, grown, growth


def _row(seed: int, at: float, **more: Any) -> dict[str, Any]:
    row = {"ground": "local", "engine": "local", "commit": "abc", "at": at, "seed": seed, "fault": "a rank killed"}
    return {**row, "moment": "last", "broken": [], "lines": 60, "seconds": 1.0, **more}


def _write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_ledgers_of_lanes_become_one_without_doubles(tmp_path: Path) -> None:
    ledger = _write(tmp_path / "chaos.jsonl", _row(0, 1.0))
    one = _write(tmp_path / "chaos-lane-0.jsonl", _row(0, 1.0), _row(2, 5.0))
    other = _write(tmp_path / "chaos-lane-1.jsonl", _row(1, 3.0))
    assert lanes.left_by_lanes(ledger) == [one, other]
    assert lanes.merge(ledger, lanes.left_by_lanes(ledger)) == 2
    assert [json.loads(line)["seed"] for line in ledger.read_text().splitlines()] == [0, 1, 2]
    assert lanes.left_by_lanes(ledger) == []


def test_the_report_counts_faults_and_knows_the_last_seed() -> None:
    rows = [_row(7, 1.0), _row(9, 2.0, broken=["lost"]), _row(9, 3.0, commit="abc+")]
    (commit,) = report.by_commit(rows).values()
    assert commit["faults"] == {"local/local": {"a rank killed": 2}}
    assert commit["broken"] == [["local", 9, "a rank killed", "lost"]]
    assert (commit["seeds"], commit["lines"]) == ({"local": 9}, 120)


def test_faults_since_the_last_break_are_those_that_came_later_whatever_became_of_the_commits() -> None:
    rows = [_row(1, 50.0, commit="bbb", broken=["lost"]), _row(2, 90.0, commit="aaa"), _row(3, 20.0, commit="ccc")]
    assert "| local | local | 1 | 3 | 1 | 1 |" in report.table(report.by_commit(rows))


def _samples(**by_sample: float) -> list[Sample]:
    flat = {"server_mb": 80.0, "agents_mb": 60.0, "descriptors": 90, "log_mb": 4.0, "disk_mb": 50.0, "processes": 6}
    return [
        Sample(runs=number * 20, seconds=number * 10.0, **{**flat, **{k: v * number for k, v in by_sample.items()}})  # type: ignore[arg-type]
        for number in range(60)
    ]


def test_what_grows_in_a_soak_is_named_with_its_rate() -> None:
    assert grown(_samples()) == []
    assert grown(_samples(server_mb=0.5)) == ["server_mb grows by 25 in 1,000 runs"]
    assert growth(_samples(disk_mb=0.2))["disk_mb"].per_hour == pytest.approx(72.0)


def test_time_in_which_processes_wait_for_a_processor_counts_less(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 0.0, "waited": 0.0}
    monkeypatch.setattr(waiting.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(waiting, "_waited_s", lambda: clock["waited"])
    patience = waiting.Patience(10.0)
    clock.update(now=40.0, waited=40.0)
    assert not patience.over()
    clock.update(now=43.0)
    assert patience.over()
