"""Long work with a checkpoint makes room for what is short and has waited long, and goes on from where it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import find_workspace

PER_NODE = {"distribution": {"type": "pytorch", "process_count_per_instance": 1}}
# The hours that the policy asks for are seconds here; everything else is the server as it is.
SERVER = """
import muster.defaults as defaults
defaults.PAUSE_WAITED_S = defaults.PAUSE_RAN_S = defaults.SCHEDULE_AGAIN_S = 1.0
from muster.server.main import main
main()
"""
LONG = """
import os, time
from pathlib import Path
folder, resume = Path(os.environ["MUSTER_CHECKPOINT_DIR"]), os.environ.get("MUSTER_RESUME_DIR")
print("begins at", (Path(resume) / "state").read_text() if resume else "0", flush=True)
if not resume:
    (folder / "state.tmp").write_text("7")
    (folder / "state.tmp").rename(folder / "state")
    time.sleep(600)
"""


@pytest.fixture
def site(workspace: Path) -> Iterator[Site]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, "--workspace", str(workspace / ".muster")])
    wait_until(lambda: (workspace / ".muster/server/server.json").exists(), what="the server")
    found = Site(workspace, connect(find_workspace(workspace)))
    yield found
    found.client.shutdown(force=True)
    process.wait(20)


def test_a_run_with_a_checkpoint_is_paused_for_a_short_one_that_has_waited(site: Site):
    site.client.create_cluster("c", options={"max_nodes": 1, "cpus": 1, "preemption": True})
    (site.folder / "src").mkdir()
    (site.folder / "src" / "long.py").write_text(LONG)
    long = site.run(code="./src", command=["python", "long.py"], compute="c", limits={"timeout": 86_400})
    wait_until(lambda: site.view(long)["checkpoints"], 30, "its checkpoint")
    short = site.run(command=["true"], compute="c", limits={"timeout": 60})
    assert site.wait(short)["status"] == "Completed"
    view = site.wait(long)
    assert view["status"] == "Completed", view["verdict"]
    assert [attempt["verdict"]["code"] for attempt in view["attempts"]] == ["preempted", "completed"]
    assert b"begins at 7" in site.log(long)


def test_one_is_paused_for_a_short_run_behind_a_wide_one_that_waits_on(site: Site):
    site.client.create_cluster("c", options={"max_nodes": 2, "cpus": 1, "preemption": True})
    (site.folder / "src").mkdir()
    (site.folder / "src" / "long.py").write_text(LONG)
    day = {"timeout": 86_400}
    fixed = site.run(command="sleep 600", compute="c", limits=day, queue_settings={"preemptible": False})
    long = site.run(code="./src", command=["python", "long.py"], compute="c", limits=day)
    wait_until(lambda: site.view(long)["checkpoints"], 60, "its checkpoint")
    wide = site.run(command="true", compute="c", resources={"instance_count": 2}, limits=day, **PER_NODE)
    short = site.run(command=["true"], compute="c", limits={"timeout": 60})
    assert site.wait(short)["status"] == "Completed"
    assert (site.view(fixed)["status"], site.view(wide)["status"]) == ("Running", "Queued")
    assert site.view(long)["attempts"][0]["verdict"]["code"] == "preempted"
    for run_id in (fixed, wide, long):
        site.client.cancel(run_id, force=True)
        site.wait(run_id)


def test_nobody_is_paused_where_the_cluster_does_not_allow_it(site: Site):
    site.client.create_cluster("c", options={"max_nodes": 1, "cpus": 1})
    (site.folder / "src").mkdir()
    (site.folder / "src" / "long.py").write_text(LONG)
    long = site.run(code="./src", command=["python", "long.py"], compute="c", limits={"timeout": 86_400})
    wait_until(lambda: site.view(long)["checkpoints"], 30, "its checkpoint")
    short = site.run(command=["true"], compute="c", limits={"timeout": 60})
    others = [site.run(command=["true"], compute="local") for _ in range(2)]
    for run_id in others:
        assert site.wait(run_id)["status"] == "Completed"
    assert site.view(short)["status"] == "Queued" and len(site.view(long)["attempts"]) == 1
    site.client.cancel(long, force=True)
    assert site.wait(short)["status"] == "Completed"
