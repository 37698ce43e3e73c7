"""The nodes of a gang run in the same versions, whichever of them was first, and in the archives that were recorded."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MUSTER
from tests.integration.environments.conftest import Shelf, Site

from muster.environments.caller import Caller
from muster.environments.failures import Failure
from muster.environments.venvs.builder import Progress, ensure
from muster.environments.venvs.cache import Cache
from muster.environments.venvs.interpreters import find, host_platform
from muster.environments.venvs.locks import plain
from muster.environments.venvs.ready import make_ready
from muster.errors import AccessDenied
from muster.wire.environments import AgreedVersions, BuiltEnvironment
from muster.wire.node.recipes import Recipe

SHOW = "python -c 'import small; print(small.VERSION)'"


def exact(name: str, version: str, archive: Path) -> str:
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"


def gang(shelf: Shelf, *packages: str) -> dict[str, Any]:
    return {
        "command": SHOW,
        "environment": {"pip": [*shelf.options, *packages]},
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": 2},
    }


def settle(site: Site, run: str, node: str, facts: dict[str, Any] | None) -> dict[str, Any]:
    """What an agent says and hears."""
    body = {"run": run, "attempt": 1, "environment": facts}
    answer: dict[str, Any] = site.client.calls.send("POST", f"/agents/{node}/environment", message=body)
    return answer


def test_the_first_word_on_versions_counts(shelf: Shelf, site: Site) -> None:
    archive = shelf.wheel("small", "1.0")
    run = site.run(**{**gang(shelf, "small"), "command": "python -c 'import time; time.sleep(600)'"})
    site.wait(run, "Running")
    lock = [exact("small", "1.0", archive)]
    facts = {"python": ".".join(map(str, sys.version_info[:3])), "platform": host_platform(), "key": "k"}
    assert settle(site, run, "local-0", {**facts, "lock": ["small==9"]})["lock"] == lock
    assert settle(site, run, "local-1", None)["lock"] == lock
    site.client.cancel(run, force=True)
    site.wait(run)
    with pytest.raises(AccessDenied, match="is over"):
        settle(site, run, "local-0", None)


def test_a_node_that_came_to_other_versions_takes_those_of_the_first(shelf: Shelf, tmp_path: Path) -> None:
    old, _ = shelf.wheel("small", "1.0"), shelf.wheel("small", "1.1")
    lock = (exact("small", "1.0", old),)
    settled: list[BuiltEnvironment | None] = []

    def agree(built: BuiltEnvironment | None) -> AgreedVersions:
        # Nothing is settled while it builds; when it is done, another node has come first.
        settled.append(built)
        python = ".".join(map(str, sys.version_info[:3]))
        return AgreedVersions(python, host_platform(), lock) if built else AgreedVersions()

    caller = Caller(
        "run", 1, 2, sys.executable, mark="m", environ=os.environ, folder=tmp_path, log=tmp_path / "log.txt",
        unwanted=threading.Event(), begins=lambda: None, doing=lambda text: None, note=lambda level, text: None,
        agree=agree, unpack=lambda digest, folder: None,
    )  # fmt: skip
    ready = make_ready(caller, Recipe("gang", ("small",), options=tuple(shelf.options)))
    ready.lock.release()
    assert ready.built.lock == lock
    assert [built and built.lock and plain(built.lock[0]) for built in settled] == [None, "small==1.1"]


def test_the_first_node_settles_the_versions_with_hashes_and_a_later_run_may_ask_for_them(
    shelf: Shelf, site: Site
) -> None:
    archive = shelf.wheel("small", "1.0")
    run = site.run(**gang(shelf, "small"))
    assert site.wait(run)["status"] == "Completed"
    assert list(site.client.environment_of_run(run).lock or ()) == [exact("small", "1.0", archive)]
    exported = subprocess.run([MUSTER, "env", "export", run], capture_output=True, text=True, check=True).stdout
    assert exact("small", "1.0", archive) in exported
    (site.folder / "lock.yml").write_text(exported)
    shelf.wheel("small", "2.0")
    again = site.run(command=SHOW, environment={"conda_file": "lock.yml"})
    assert site.wait(again)["status"] == "Completed" and site.log(again) == b"1.0\n"


@pytest.mark.parametrize("builder", ["uv", "pip"])
def test_an_archive_that_was_replaced_is_not_installed(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builder: str
) -> None:
    monkeypatch.setenv("MUSTER_ENVIRONMENT_BUILDER", builder)
    shelf.wheel("small", "1.0")
    cache, base = Cache(tmp_path / "cache"), find(None, sys.executable)
    recipe = Recipe("kept", ("small",), options=tuple(shelf.options))
    lock = ensure(recipe, "first", base, cache, Progress()).record.lock
    assert "--hash=sha256:" in lock[0]
    assert ensure(recipe.locked(lock), "again", base, cache, Progress()).record.lock == lock
    shelf.wheel("small", "1.0", script="something-else")
    # uv's own cache has the right one still.
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with pytest.raises(Failure, match="an archive is not the one that was recorded"):
        ensure(recipe.locked(lock), "replaced", base, cache, Progress())
