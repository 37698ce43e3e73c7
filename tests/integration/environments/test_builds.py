"""The building process alone: killed at random moments, raced for, on a full disk."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.integration.environments.conftest import Shelf

from muster.environments.venvs.cache import Cache
from muster.environments.venvs.interpreters import Interpreter
from muster.environments.venvs.request import Answer, Doing, Failed, Finished, Request
from muster.host.children import Child
from muster.wire.codec import from_json, to_json
from muster.wire.node.recipes import Recipe

KILLS = 12
READY = Finished("key")


class Building:
    """One building process, asked as an agent asks."""

    def __init__(self, recipe: Recipe, root: Path, prefix: tuple[str, ...] = (), limit_bytes: int = 1 << 40) -> None:
        command = [*prefix, sys.executable, "-m", "muster.environments.venvs.build"]
        self.child = Child(command, errors=subprocess.DEVNULL)
        base = Interpreter(sys.executable, tuple(sys.version_info[:3]))
        request = Request(recipe, "key", base, str(root), limit_bytes)
        self.child.send(to_json(request))

    def result(self) -> Answer | None:
        """Its last answer; None when it died without one."""
        answers: list[Answer] = [from_json(Answer, message) for message in self.child.messages()]  # type: ignore[arg-type]
        self.close()
        return answers[-1] if answers and not isinstance(answers[-1], Doing) else None

    def close(self) -> int:
        return self.child.end(60.0)

    def kill(self) -> None:
        self.child.end()


def test_a_build_killed_at_random_moments_leaves_nothing_that_is_taken_for_complete(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.wheel("small", "1.0", script="small-says")
    recipe = Recipe("killed", ("small",), options=tuple(shelf.options))
    cache = Cache(tmp_path / "cache")
    # The first is slower than all that follow, which would then be killed too late.
    _, whole_s = (_timed(lambda name=name: Building(recipe, tmp_path / name).result()) for name in ("cold", "warm"))
    dice = random.Random(7)
    complete = 0
    for _ in range(KILLS):
        building = Building(recipe, cache.root)
        time.sleep(dice.uniform(0.0, whole_s))
        if dice.random() < 0.5:
            os.killpg(building.child.pid, signal.SIGKILL)
        building.kill()
        found = cache.find("key")
        if found is None:
            assert cache.hold("key") is None
            continue
        complete += 1
        said = subprocess.run([found.folder / "bin" / "small-says"], capture_output=True, text=True, check=True)
        assert said.stdout == "small 1.0\n"
        wait_until(lambda: cache.remove("key"), what="that nobody builds any more")
    assert complete < KILLS
    assert Building(recipe, cache.root).result() == READY
    assert [path.name for path in cache.root.iterdir() if path.name[0] != "."] == ["key"]


def test_a_build_ends_with_whoever_asked_for_it(shelf: Shelf, tmp_path: Path) -> None:
    gate = shelf.gated("slow")
    building = Building(Recipe("gone", ("slow",), options=tuple(shelf.options)), tmp_path / "cache")
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    assert building.close() == -signal.SIGKILL
    cache = Cache(tmp_path / "cache")
    wait_until(lambda: cache.sweep() == ["key"], what="that nothing holds it any more")


def test_processes_that_race_for_one_environment_build_it_once(shelf: Shelf, tmp_path: Path) -> None:
    gate = shelf.gated("slow")
    recipe = Recipe("raced", ("slow",), options=tuple(shelf.options))
    racing = [Building(recipe, tmp_path / "cache") for _ in range(3)]
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    gate.open()
    assert [building.result() for building in racing] == [READY] * 3
    assert gate.begun.read_text() == "begun\n"


def test_the_one_that_waits_builds_when_the_other_fails(shelf: Shelf, tmp_path: Path) -> None:
    gate = shelf.gated("slow")
    recipe = Recipe("raced", ("slow",), options=tuple(shelf.options))
    first = Building(recipe, tmp_path / "cache")
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    second = Building(recipe, tmp_path / "cache")
    os.killpg(first.child.pid, signal.SIGKILL)
    first.close()
    wait_until(lambda: gate.begun.read_text() == "begun\nbegun\n", what="the build by the other")
    gate.open()
    assert second.result() == READY


def test_a_full_disk_is_a_cause_of_its_own(shelf: Shelf, tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("a small disk is made with unshare (util-linux)")
    shelf.wheel("small", "1.0")
    root = tmp_path / "small-disk"
    root.mkdir()
    small = ("unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=64k none "{root}" && exec "$@"', "sh")
    failed = Building(Recipe("full", ("small",), options=tuple(shelf.options)), root, small).result()
    assert isinstance(failed, Failed) and failed.code == "disk_full" and failed.message == "the disk is full"
    assert "MUSTER_ENVIRONMENTS_DIR" in failed.next


def test_a_build_makes_room_by_removing_what_was_used_longest_ago(shelf: Shelf, tmp_path: Path) -> None:
    shelf.wheel("small", "1.0")
    recipe = Recipe("first", ("small",), options=tuple(shelf.options))
    cache = Cache(tmp_path / "cache")
    assert Building(recipe, cache.root).result() == READY
    cache.folder("key").rename(cache.folder("older"))
    (cache.root / ".locks/key.use").rename(cache.root / ".locks/older.use")
    assert {built.key for built in cache.entries()} == {"older"}
    assert Building(recipe, cache.root, limit_bytes=1).result() == READY
    assert {built.key for built in cache.entries()} == {"key"}


def _timed(work: Any) -> float:
    began = time.monotonic()
    assert work() == READY
    return time.monotonic() - began
