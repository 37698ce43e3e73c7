"""A second engine behind the same six methods: machines that come late, stay away and vanish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.errors import JobError

GANG = {"distribution": {"type": "pytorch", "process_count_per_instance": 1}, "resources": {"instance_count": 2}}


@pytest.fixture
def switches(tmp_path: Path) -> Path:
    folder = tmp_path / "switches"
    folder.mkdir()
    return folder


@pytest.fixture
def site(workspace: Path, switches: Path) -> Iterator[Site]:
    config = workspace / ".muster" / "workspace.json"
    engines = {"fake": "muster.testing.engine:FakeEngine"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "engines": engines}))
    client = connect(find_workspace(workspace))
    client.create_cluster("farm", "fake", {"folder": str(switches), "max_nodes": 3})
    yield Site(workspace, client)
    client.close()


def test_a_gang_runs_on_machines_of_their_own(site: Site):
    run_id = site.run(command="echo $NODE_RANK of $WORLD_SIZE", compute="farm", **GANG)
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert [node["name"] for node in view["attempts"][0]["nodes"]] == ["farm-0", "farm-1"]
    assert [site.log(run_id, rank["log"]) for rank in view["attempts"][0]["ranks"]] == [b"0 of 2\n", b"1 of 2\n"]


def test_a_run_waits_for_machines_that_are_being_brought(site: Site, switches: Path):
    (switches / "hold").touch()
    run_id = site.run(command="true", compute="farm", **GANG)
    view = site.wait(run_id, "Provisioning")
    assert view["reason"] == "waits for the agents of its 2 nodes on farm"
    (switches / "hold").unlink()
    assert site.wait(run_id)["status"] == "Completed"


def test_a_run_that_waits_for_machines_can_be_cancelled(site: Site, switches: Path):
    (switches / "hold").touch()
    run_id = site.run(command="true", compute="farm", **GANG)
    site.wait(run_id, "Provisioning")
    site.client.cancel(run_id)
    assert site.wait(run_id)["status"] == "Canceled"


def test_a_machine_that_vanishes_is_a_lost_node_and_the_gang_ends(site: Site, switches: Path):
    command = "echo here; exec sleep 600"
    run_id = site.run(command=command, compute="farm", retry={"node_loss": 0}, **GANG)
    site.wait(run_id, "Running")
    ranks = [site.rank(run_id, 0), site.rank(run_id, 1)]
    (switches / "gone-farm-1").touch()
    view = site.wait(run_id, timeout_s=60)
    assert (view["status"], view["verdict"]["code"], view["verdict"]["node"]) == ("Failed", "node_lost", "farm-1")
    for rank in ranks:
        wait_until(lambda rank=rank: not rank.is_running() or rank.status() == "zombie", 10, "the end of the ranks")


def test_a_lost_machine_is_replaced_by_another_on_the_next_attempt(site: Site, switches: Path):
    command = 'if [ "$MUSTER_ATTEMPT" = 1 ]; then exec sleep 600; fi; echo second'
    run_id = site.run(command=command, compute="farm", retry={"node_loss": 1, "backoff_s": 0}, **GANG)
    site.wait(run_id, "Running")
    (switches / "gone-farm-1").touch()
    view = site.wait(run_id, timeout_s=60)
    assert view["status"] == "Completed", view["verdict"]
    assert [attempt["status"] for attempt in view["attempts"]] == ["Failed", "Completed"]
    assert "farm-1" not in [node["name"] for node in view["attempts"][1]["nodes"]]


def test_an_engine_that_fails_to_start_agents_does_not_end_the_scheduler(site: Site, switches: Path):
    (switches / "fails").touch()
    failing = site.run(command="true", compute="farm", retry={"node_loss": 0})
    site.wait(failing, "Provisioning", timeout_s=60)
    # Nothing that ran before has ended, so that only the scheduler's own loop can start it.
    later = site.run(command="true")
    assert site.wait(later, timeout_s=60)["status"] == "Completed"
    (switches / "fails").unlink()
    site.wait(failing, timeout_s=60)
    assert site.wait(site.run(command="true", compute="farm"), timeout_s=60)["status"] == "Completed"


def test_an_engine_that_takes_its_time_holds_up_no_other_cluster(site: Site, switches: Path):
    (switches / "stuck").touch()
    slow = site.run(command="true", compute="farm")
    site.wait(slow, "Provisioning", timeout_s=60)
    assert site.wait(site.run(command="true"), timeout_s=60)["status"] == "Completed"
    (switches / "stuck").unlink()
    assert site.wait(slow, timeout_s=60)["status"] == "Completed"


def test_settings_that_cannot_work_are_refused(site: Site):
    with pytest.raises(JobError, match="needs the option `folder`"):
        site.client.create_cluster("other", "fake", {})
    with pytest.raises(JobError, match="there is no engine 'cloud'"):
        site.client.create_cluster("other", "cloud", {})


def test_an_engine_that_is_gone_or_broken_stops_nothing_else(site: Site):
    server = site.server()
    site.client.shutdown()
    server.wait(15)
    config = site.folder / ".muster" / "workspace.json"
    engines = {"broken": "nowhere_to_be_found:Engine"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "engines": engines}))
    client = connect(find_workspace(site.folder))
    try:
        with pytest.raises(JobError, match=r"'broken' .*cannot be used: ModuleNotFoundError"):
            client.create_cluster("other", "broken", {})
        (farm,) = [cluster for cluster in client.clusters() if cluster.name == "farm"]
        assert (farm.nodes, farm.node, farm.lent) == ((), None, False)
        again = Site(site.folder, client)
        with pytest.raises(JobError, match="there is no engine 'fake'"):
            again.run(command="true", compute="farm")
        assert again.wait(again.run(command="true"))["status"] == "Completed"
    finally:
        client.close()
