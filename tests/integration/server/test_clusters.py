"""Clusters on the local engine, with the real server, agents and ranks: nodes come, work, fail and go."""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any

import psutil
import pytest
from tests.conftest import process, wait_until
from tests.integration.server.conftest import Site

from muster import AmlCompute, ComputeTarget, Workspace
from muster.errors import Conflict, JobError

PER_PROCESS = {"type": "pytorch", "process_count_per_instance": 1}


def create(site: Site, name: str = "c", **options: Any) -> None:
    site.client.create_cluster(name, options={"max_nodes": 2, "cpus": 1, **options})


def states(site: Site, name: str = "c") -> dict[str, str]:
    return {node.name: node.state for node in site.client.cluster(name).nodes}


def sleeper(site: Site, **job: Any) -> str:
    return site.run(**{"command": ["sleep", "600"], "compute": "c", **job})


def test_nodes_come_for_the_queue_and_go_when_idle(site: Site):
    create(site, idle_seconds_before_scaledown=0)
    assert states(site) == {}
    run_id = site.run(command=["true"], compute="c", resources={"instance_count": 2}, distribution=PER_PROCESS)
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert sorted(node["name"] for node in view["attempts"][0]["nodes"]) == ["c-0", "c-1"]
    assert view["created_at"] <= view["started_at"] <= view["ended_at"], "however short it is, its length is known"
    wait_until(lambda: states(site) == {}, 20, "the idle nodes to go")
    history = [item.state for item in site.client.node_history("c", "c-0")]
    assert history[0] == "preparing" and history[-2:] == ["leaving", "gone"]
    assert not [process for process in site.server().children() if process.status() != psutil.STATUS_ZOMBIE]


def test_several_jobs_fit_on_a_node_and_the_rest_waits_with_a_reason(site: Site):
    create(site, max_nodes=1, cpus=2, min_nodes=1)
    first, second = sleeper(site), sleeper(site)
    for run_id in (first, second):
        site.wait(run_id, "Running")
    third = sleeper(site)
    reason = wait_until(lambda: "held by" in site.view(third)["reason"] and site.view(third)["reason"], 10, "a reason")
    assert reason.startswith("needs 1 node; none are free, the next is held by ")
    assert first in reason or second in reason
    told = site.view(third)["starts_between"]
    assert told["low_at"] < told["high_at"]
    site.client.cancel(first, force=True)
    site.wait(third, "Running")
    view = site.view(third)
    kept = view["told_at_first"]
    assert kept["held"] == (kept["low_at"] <= view["started_at"] <= kept["high_at"])
    assert view["ends_between"]["low_at"] < view["ends_between"]["high_at"]


def test_a_short_run_passes_one_that_waits_for_more_nodes(site: Site):
    create(site, min_nodes=2)
    wait_until(lambda: list(states(site).values()) == ["idle", "idle"], 20, "two nodes")
    long = sleeper(site, limits={"timeout": 3600})
    site.wait(long, "Running")
    # Without a limit it would count as queued later than those with one.
    wide = sleeper(site, resources={"instance_count": 2}, distribution=PER_PROCESS, limits={"timeout": 3600})
    wait_until(lambda: site.view(wide)["starts_at"], 10, "an estimate")
    short = site.run(command=["true"], compute="c", limits={"timeout": 60})
    late = sleeper(site, limits={"timeout": 36_000})
    assert site.wait(short)["status"] == "Completed"
    assert site.view(late)["status"] == "Queued" == site.view(wide)["status"]
    assert f"waits behind {wide}" in site.view(late)["reason"]


def test_a_set_up_command_runs_before_the_first_job_and_its_log_is_kept(site: Site):
    marker = site.folder / "marker"
    create(site, max_nodes=1, setup=f"echo preparing; echo x >> {marker}")
    for _ in range(2):
        run_id = site.run(command=["cat", str(marker)], compute="c")
        assert site.wait(run_id)["status"] == "Completed"
        assert site.log(run_id).decode().split() == ["x"]
    assert site.client.setup_log("c", "c-0") == "preparing\n"


def test_a_node_whose_set_up_fails_is_unusable_and_can_be_taken_back(site: Site):
    marker = site.folder / "fixed"
    create(site, max_nodes=1, min_nodes=1, setup=f"test -e {marker} || {{ echo no driver; exit 3; }}")
    wait_until(lambda: states(site) == {"c-0": "unusable"}, 20, "the failed set-up")
    assert site.client.cluster("c").nodes[0].reason == "its set-up failed: exit code 3: no driver"
    run_id = site.run(command=["true"], compute="c")
    wait_until(lambda: "can be used" in site.view(run_id)["reason"], 10, "the reason")
    marker.touch()
    site.client.cordon("c", "c-0", cordoned=False)
    assert site.wait(run_id)["status"] == "Completed"


def test_a_cordoned_node_keeps_its_run_and_gets_no_other(site: Site):
    create(site, max_nodes=1)
    first = sleeper(site)
    site.wait(first, "Running")
    site.client.cordon("c", "c-0", reason="swap the disk")
    second = sleeper(site)
    wait_until(lambda: "can be used" in site.view(second)["reason"], 10, "the reason")
    node = site.client.cluster("c").nodes[0]
    assert (node.state, node.reason, node.runs) == ("running", "cordoned: swap the disk", (first,))
    site.client.cancel(first, force=True)
    site.wait(first)
    assert site.view(second)["status"] == "Queued"
    site.client.cordon("c", "c-0", cordoned=False)
    site.wait(second, "Running")


def test_a_node_where_runs_keep_failing_is_set_aside(site: Site):
    create(site, max_nodes=1, min_nodes=1)
    command = ["python", "-c", "import sys; print('OSError: [Errno 28] No space left on device'); sys.exit(1)"]
    for _ in range(3):
        site.wait(site.run(command=command, compute="c"))
    wait_until(lambda: states(site) == {"c-0": "unusable"}, 20, "the node to be set aside")
    assert "set aside after 3 failures in a row" in site.client.cluster("c").nodes[0].reason


def test_a_higher_priority_takes_the_nodes_where_the_cluster_allows_it(site: Site):
    create(site, max_nodes=1, preemption=True)
    low = sleeper(site, queue_settings={"priority": "low"}, retry={"backoff_s": 0})
    site.wait(low, "Running")
    high = site.run(command=["true"], compute="c", queue_settings={"priority": "high"})
    assert site.wait(high)["status"] == "Completed"
    view = wait_until(
        lambda: (found := site.view(low))["status"] == "Running" and len(found["attempts"]) == 2 and found, 40, "low"
    )
    assert view["attempts"][0]["verdict"]["code"] == "preempted"


def test_resizing_lets_runs_end_or_queues_them_again(site: Site):
    create(site, min_nodes=2)
    wait_until(lambda: len(states(site)) == 2, 20, "two nodes")
    runs = [sleeper(site), sleeper(site)]
    for run_id in runs:
        site.wait(run_id, "Running")
    site.client.change_cluster("c", {"max_nodes": 1, "min_nodes": 0})
    placed = {site.view(run_id)["attempts"][0]["nodes"][0]["name"]: run_id for run_id in runs}
    assert site.view(placed["c-1"])["status"] == "Running"
    site.client.change_cluster("c", {}, now=True)
    view = wait_until(lambda: (found := site.view(placed["c-1"]))["status"] == "Queued" and found, 40, "the requeue")
    assert view["attempts"][0]["verdict"]["code"] == "preempted"
    wait_until(lambda: states(site) == {"c-0": "running"}, 20, "the node to go")
    assert site.view(placed["c-0"])["status"] == "Running"


def test_stop_start_and_delete_do_what_was_asked(site: Site):
    create(site, max_nodes=1)
    run_id = sleeper(site)
    site.wait(run_id, "Running")
    site.client.change_cluster("c", state="stopped")
    waits = sleeper(site)
    wait_until(lambda: "is stopped" in site.view(waits)["reason"], 10, "the reason")
    site.client.cancel(run_id, force=True)
    wait_until(lambda: states(site) == {}, 20, "the nodes to go")
    site.client.change_cluster("c", state="ready")
    site.wait(waits, "Running")
    with pytest.raises(Conflict, match="runs use c"):
        site.client.delete_cluster("c")
    site.client.delete_cluster("c", "drain")
    with pytest.raises(Conflict, match="being deleted"):
        sleeper(site)
    assert site.view(waits)["status"] == "Running"
    site.client.delete_cluster("c", "now")
    assert site.wait(waits)["status"] == "Canceled"
    wait_until(lambda: [item.name for item in site.client.clusters()] == ["local"], 20, "the cluster to go")


def test_a_machine_that_is_taken_back_is_a_preempted_node(site: Site):
    create(site)
    run_id = sleeper(site, retry={"backoff_s": 0})
    site.wait(run_id, "Running")

    def pid() -> int | None:
        return next(node.pid for node in site.client.cluster("c").nodes if node.name == "c-0")

    process(pid, "the agent").send_signal(signal.SIGTERM)

    def past() -> list[str]:
        return [item.state for item in site.client.node_history("c", "c-0")]

    wait_until(lambda: "preempted" in past(), 20, "the node to be preempted")
    view = wait_until(
        lambda: (found := site.view(run_id))["status"] == "Running" and len(found["attempts"]) == 2 and found, 60, "go"
    )
    assert view["attempts"][0]["verdict"]["code"] == "preempted"
    assert view["attempts"][1]["nodes"][0]["name"] == "c-1"


def test_quotas_and_impossible_wishes(site: Site):
    create(site, quotas={"per_experiment": {"nodes": 1}})
    with pytest.raises(JobError, match="can never start"):
        sleeper(site, resources={"instance_count": 2}, distribution=PER_PROCESS)
    with pytest.raises(JobError, match="at most 2"):
        sleeper(site, resources={"instance_count": 3}, distribution=PER_PROCESS)
    first, second = sleeper(site), sleeper(site)
    other = sleeper(site, experiment_name="other")
    site.wait(first, "Running")
    site.wait(other, "Running")
    assert "the experiment default may hold 1 nodes of c" in site.view(second)["reason"]


def test_a_new_server_goes_on_with_the_cluster(site: Site):
    create(site, min_nodes=1)
    run_id = sleeper(site)
    site.wait(run_id, "Running")
    waits = sleeper(site, resources={"instance_count": 2}, distribution=PER_PROCESS)
    site.server().kill()
    assert site.view(waits)["status"] == "Queued"
    site.client.cancel(run_id, force=True)
    site.wait(waits, "Running")


def test_a_server_that_died_before_it_started_an_agent_is_made_up_for(site: Site):
    create(site, max_nodes=1)
    site.server().kill()
    with closing(sqlite3.connect(site.folder / ".muster" / "server" / "muster.db")) as database, database:
        row = ("c", "c-0", "preparing", "its agent is being started", time.time(), 0)
        columns = "cluster, name, state, reason, since, strikes"
        database.execute(f"INSERT INTO node_states ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
    site.wait(sleeper(site), "Running", timeout_s=20)
    assert states(site) == {"c-0": "running"}


def test_the_sdk_makes_clusters_and_what_they_cost_is_told(site: Site, capsys: pytest.CaptureFixture[str]):
    workspace = Workspace.from_config()
    config = AmlCompute.provisioning_configuration(
        vm_size="Standard_NC6", vm_priority="dedicated", min_nodes=1, max_nodes=2, idle_seconds_before_scaledown=0
    )
    target = ComputeTarget.create(workspace, "gpus", config)
    target.wait_for_completion(show_output=True)
    status = target.get_status()
    assert status.current_node_count == 1 and status.serialize()["price_per_hour"] == 0.9
    assert [node["state"] for node in target.list_nodes()] == ["idle"]
    run_id = site.run(command=[sys.executable, "-c", "import time; time.sleep(0.5)"], compute="gpus")
    assert site.wait(run_id)["status"] == "Completed"
    line = site.client.cost("cluster").lines[0]
    assert line.key == "gpus" and line.node_hours > 0
    assert line.cost == pytest.approx(line.node_hours * 0.9, abs=1e-4)
    assert site.client.cost("run").lines[0].key == run_id
    use = site.client.cluster_use("gpus", hours=1, points=4)
    assert [point.nodes for point in use.points[:3]] == [0.0] * 3
    assert use.points[3].nodes > use.points[3].busy >= 0.5 / 900
    assert use.points[3].busy == pytest.approx(line.node_hours * 4, abs=0.01)
    target.update(min_nodes=0)
    target.delete()
    target.wait_for_completion(is_delete_operation=True, timeout_in_minutes=1)
