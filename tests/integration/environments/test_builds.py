"""The building process alone: killed at random moments, raced for, on a full disk."""

from __future__ import annotations

import json
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
from muster.environments.venvs.recipe import Recipe
from muster.environments.venvs.request import Request

KILLS = 12


class Building:
    """One building process, asked as an agent asks."""

    def __init__(self, recipe: Recipe, root: Path, prefix: tuple[str, ...] = (), limit_bytes: int = 1 << 40) -> None:
        answers, theirs = os.pipe()
        version = list(sys.version_info[:3])
        request = Request(recipe.to_json(), "key", sys.executable, version, str(root), limit_bytes, theirs)
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "muster.environments.venvs.build"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)
        self._answers = os.fdopen(answers)
        assert self.process.stdin is not None
        self.process.stdin.write(request.to_line())
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Its last answer; empty when it died without one."""
        lines = self._answers.read().splitlines()
        self.close()
        last: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return last if "doing" not in last else {}

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait()
        self._answers.close()

    def kill(self) -> None:
        self.process.kill()
        self.close()


def test_a_build_killed_at_random_moments_leaves_nothing_that_is_taken_for_complete(
    shelf: Shelf, tmp_path: Path
) -> None:
    shelf.wheel("small", "1.0", script="small-says")
    recipe = Recipe("killed", ("small",), options=tuple(shelf.options))
    cache = Cache(tmp_path / "cache")
    whole_s = _timed(lambda: Building(recipe, tmp_path / "warm").result())
    dice = random.Random(7)
    complete = 0
    for _ in range(KILLS):
        building = Building(recipe, cache.paths.root)
        time.sleep(dice.uniform(0.0, whole_s))
        if dice.random() < 0.5:
            os.killpg(building.process.pid, signal.SIGKILL)
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
    assert Building(recipe, cache.paths.root).result() == {"ready": "key"}
    assert [path.name for path in cache.paths.root.iterdir() if path.name[0] != "."] == ["key"]


def test_a_build_ends_with_whoever_asked_for_it(shelf: Shelf, tmp_path: Path) -> None:
    gate = shelf.gated("slow")
    building = Building(Recipe("gone", ("slow",), options=tuple(shelf.options)), tmp_path / "cache")
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    building.close()
    assert building.process.returncode == -signal.SIGKILL
    cache = Cache(tmp_path / "cache")
    wait_until(lambda: cache.sweep() == ["key"], what="that nothing holds it any more")


def test_processes_that_race_for_one_environment_build_it_once(shelf: Shelf, tmp_path: Path) -> None:
    gate = shelf.gated("slow")
    recipe = Recipe("raced", ("slow",), options=tuple(shelf.options))
    racing = [Building(recipe, tmp_path / "cache") for _ in range(3)]
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    gate.open()
    assert [building.result() for building in racing] == [{"ready": "key"}] * 3
    assert gate.begun.read_text() == "begun\n"


def test_the_one_that_waits_builds_when_the_other_fails(shelf: Shelf, tmp_path: Path) -> None:
    gate = shelf.gated("slow")
    recipe = Recipe("raced", ("slow",), options=tuple(shelf.options))
    first = Building(recipe, tmp_path / "cache")
    wait_until(gate.has_begun, 60.0, "the begin of the build")
    second = Building(recipe, tmp_path / "cache")
    os.killpg(first.process.pid, signal.SIGKILL)
    first.close()
    wait_until(lambda: gate.begun.read_text() == "begun\nbegun\n", what="the build by the other")
    gate.open()
    assert second.result() == {"ready": "key"}


def test_a_full_disk_is_a_cause_of_its_own(shelf: Shelf, tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("a small disk is made with unshare (util-linux)")
    shelf.wheel("small", "1.0")
    root = tmp_path / "small-disk"
    root.mkdir()
    small = ("unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=64k none "{root}" && exec "$@"', "sh")
    failed = Building(Recipe("full", ("small",), options=tuple(shelf.options)), root, small).result()["failed"]
    assert failed["code"] == "disk_full" and failed["message"] == "the disk is full"
    assert "MUSTER_ENVIRONMENTS_DIR" in failed["next"]


def test_a_build_makes_room_by_removing_what_was_used_longest_ago(shelf: Shelf, tmp_path: Path) -> None:
    shelf.wheel("small", "1.0")
    recipe = Recipe("first", ("small",), options=tuple(shelf.options))
    cache = Cache(tmp_path / "cache")
    assert Building(recipe, cache.paths.root).result() == {"ready": "key"}
    cache.paths.folder("key").rename(cache.paths.folder("older"))
    cache.paths.use_lock("key").rename(cache.paths.use_lock("older"))
    assert {built.key for built in cache.all()} == {"older"}
    assert Building(recipe, cache.paths.root, limit_bytes=1).result() == {"ready": "key"}
    assert {built.key for built in cache.all()} == {"key"}


def _timed(work: Any) -> float:
    began = time.monotonic()
    assert work() == {"ready": "key"}
    return time.monotonic() - began
