"""A server that started and does not answer at once is asked again before anybody calls it gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import connect
from muster.errors import ServerUnavailable
from muster.host.http import Address
from muster.host.locks import FileLock
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


@pytest.mark.parametrize("is_held", [True, False])
def test_one_that_another_command_started_meanwhile_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_held: bool
) -> None:
    paths, answers = WorkspacePaths(tmp_path), iter([None, None, THERE])
    paths.server_dir.mkdir(parents=True)

    def refused(_: WorkspacePaths) -> None:
        raise ServerUnavailable("could not be started: another server has the workspace")

    monkeypatch.setattr(connect, "_running", lambda _: next(answers))
    monkeypatch.setattr(connect, "wait_until_gone", lambda *_: None)
    monkeypatch.setattr(connect, "start_server", refused)
    held = FileLock(paths.server_lock).acquire()
    if is_held:
        assert connect._embedded_address(paths, start=True) == THERE
    held.release()
    if not is_held:
        with pytest.raises(ServerUnavailable, match="could not be started"):
            connect._embedded_address(paths, start=True)
