"""Whether a node's agent lives, told by its lock."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from muster.paths import NodePaths


def test_a_folder_without_a_lock_has_no_agent(tmp_path: Path):
    assert not NodePaths(tmp_path).agent_lives()


def test_a_lock_that_nobody_holds_is_of_an_agent_that_left(tmp_path: Path):
    NodePaths(tmp_path).lock.touch()
    assert not NodePaths(tmp_path).agent_lives()


def test_an_agent_lives_while_it_holds_the_lock(tmp_path: Path):
    paths = NodePaths(tmp_path)
    with paths.lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert paths.agent_lives()
    assert not paths.agent_lives()


def test_two_who_look_at_once_do_not_take_each_other_for_the_agent(tmp_path: Path):
    paths = NodePaths(tmp_path)
    with paths.lock.open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not paths.agent_lives()


def test_a_lock_that_cannot_be_asked_about_counts_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    NodePaths(tmp_path).lock.touch()
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert NodePaths(tmp_path).agent_lives()
