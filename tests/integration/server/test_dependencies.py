"""Runs that start after others, on the queue of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site

from muster import errors


def test_a_run_starts_once_those_before_it_have_completed(site: Site, tmp_path: Path):
    first = site.run(command=f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done", name="first-of-two")
    then = site.run(command="true", after="first-of-two")
    anyhow = site.run(command="true", after=[f"{first}:ended"])
    wait_until(lambda: site.view(then)["reason"] == f"waits for {first} (Running)", 30, "the reason")
    (tmp_path / "go").touch()
    views = [site.wait(run_id) for run_id in (first, then, anyhow)]
    assert [view["status"] for view in views] == ["Completed"] * 3
    assert views[1]["spec"]["after"] == [f"{first}:completed"]
    assert min(view["started_at"] for view in views[1:]) >= views[0]["ended_at"]


def test_a_run_whose_predecessor_fails_never_starts_unless_it_said_however(site: Site, tmp_path: Path):
    first = site.run(command=f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 3", retry={"user_error": 0})
    then = site.run(command="true", after=first)
    last = site.run(command="true", after=then)
    anyhow = site.run(command="true", after=f"{first}:ended")
    (tmp_path / "go").touch()
    assert site.wait(first)["status"] == "Failed"
    assert site.wait(anyhow)["status"] == "Completed"
    ended = site.wait(then)
    assert (ended["status"], ended["verdict"]["message"]) == (
        "Canceled", f"it never started: {first}, which it depends on, ended as Failed",
    )  # fmt: skip
    assert site.wait(last)["status"] == "Canceled"
    with pytest.raises(errors.JobError, match="has ended as Failed, so the job would never start"):
        site.run(command="true", after=first)
    with pytest.raises(errors.MusterError, match="there is no run 'nobody'"):
        site.run(command="true", after="nobody")
