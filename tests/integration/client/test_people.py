"""A colleague is invited, logs in, works, and is locked out while she follows a run: all as people type it."""

from __future__ import annotations

import dataclasses
import http.client
import json
import subprocess
import threading
from pathlib import Path

import pytest
from tests.conftest import MUSTER, wait_until

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.submit import submit
from muster.client.workspace import ServerRef, find_workspace
from muster.errors import MusterError
from muster.job.explain import make_spec


def muster(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MUSTER, *words], cwd=folder, input=given, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def owner(team: ServerRef) -> Client:
    return connect(dataclasses.replace(find_workspace(), server=team))


def test_a_colleague_joins_works_and_is_locked_out(
    workspace: Path, tmp_path: Path, team: ServerRef, owner: Client
) -> None:
    made = muster(workspace, "user", "invite", "ada")
    assert made.returncode == 0, made.stderr
    link = made.stdout.strip()
    assert link.startswith(f"{team.url}/#muster_invite_")
    hers = tmp_path / "hers"
    hers.mkdir()
    plain, _, shown = link.partition("&")
    unknown = muster(hers, "login", plain).stderr
    assert f"muster login '{plain}' --fingerprint {shown}" in unknown, "the invitation is not lost from the advice"
    other = plain + "&SHA256:" + "A" * 43
    assert "shows another certificate" in muster(hers, "login", other).stderr, "nor sent to whoever shows another one"
    done = muster(hers, "login", link, "--here")
    assert done.returncode == 0 and "as ada (member)" in done.stdout
    again = muster(tmp_path, "login", link, "--here")
    assert again.returncode != 0 and "was used" in again.stderr

    ada = connect(find_workspace(hers))
    run = submit(ada, make_spec({"command": "sleep 300"}), hers).id
    assert owner.run(run).submitted_by == "ada"
    wait_until(lambda: owner.run(run).status == "Running", 60, "the run")
    listed = muster(hers, "token", "list")
    assert "ada" in listed.stdout
    assert muster(hers, "audit").returncode != 0

    begun, ended = threading.Event(), threading.Event()
    follower = threading.Thread(target=_follow, args=(ada, run, begun, ended))
    follower.start()
    assert begun.wait(15)
    assert muster(workspace, "user", "disable", "ada").returncode == 0
    assert ended.wait(15), "who is locked out hears nothing more"
    follower.join()
    assert "not valid here" in muster(hers, "ps").stderr
    assert muster(workspace, "cancel", "--force", run).returncode == 0
    seen = json.loads(muster(workspace, "audit", "--json").stdout)
    lines = {(item["who"], item["action"]) for item in seen}
    assert {("ada", "run.submit"), ("ada", "token.change"), (owner.myself().name, "people.change")} <= lines
    assert {item["source"] for item in seen if item["who"] == "ada"} == {"127.0.0.1"}


def _follow(client: Client, run: str, begun: threading.Event, ended: threading.Event) -> None:
    try:
        for _ in client.calls.events(f"/runs/{run}/stream", {}):
            begun.set()
    except (MusterError, OSError, http.client.HTTPException):
        pass
    finally:
        ended.set()
