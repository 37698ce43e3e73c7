"""A server that started and does not answer at once is asked again before anybody calls it gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import connect
from muster.errors import ServerUnavailable
from muster.host.http import Address
from muster.paths import WorkspacePaths

THERE = Address("unix:/there", "token")


def _play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: list[Address | None]) -> tuple[Address, list[str]]:
    said: list[str] = []
    given: Iterator[Address | None] = iter(answers)
    monkeypatch.setattr(connect, "_running", lambda _: next(given, None))
    monkeypatch.setattr(connect, "wait_until_gone", lambda *_: said.append("waited"))
    monkeypatch.setattr(connect, "start_server", lambda _: said.append("started"))
    return connect._embedded_address(WorkspacePaths(tmp_path), start=True), said


def test_one_that_answers_late_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = _play(monkeypatch, tmp_path, [None, None, None, THERE])
    assert found == (THERE, ["waited", "started", "waited"])


def test_another_is_started_when_the_first_was_told_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = _play(monkeypatch, tmp_path, [None, None, None, None, THERE])
    assert found == (THERE, ["waited", "started"] * 2)


def test_one_that_keeps_going_away_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable, match="started and went away again"):
        _play(monkeypatch, tmp_path, [])
