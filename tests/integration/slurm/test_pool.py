"""A pool of nodes on a real Slurm: one array, many runs, nodes that go when nobody needs them."""

from __future__ import annotations

from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import OPTIONS
from tests.sites.slurm import SlurmSite

TWO = {"type": "pytorch", "process_count_per_instance": 1}


def tasks(slurm: SlurmSite) -> list[str]:
    """The states of the pool's tasks that are not over, with the nodes' names."""
    listed = slurm.command("squeue", "-h", "-r", "-t", "pending,running", "-o", "%i %T %N %j").splitlines()
    return [line for line in listed if "@muster-pool-" in line]


def test_many_runs_share_one_array_and_its_nodes_leave_when_idle(own_site: Site, slurm: SlurmSite):
    options = OPTIONS | {"max_nodes": 2, "cpus": 1, "idle_seconds_before_scaledown": 3}
    own_site.client.create_cluster("small", "slurm-pool", options)
    runs = [own_site.run(command=f"echo run {number}", compute="small") for number in range(6)]
    gang = {"compute": "small", "resources": {"instance_count": 2}, "distribution": TWO}
    runs.append(own_site.run(command="echo $RANK/$WORLD_SIZE at $MASTER_ADDR", **gang))
    views = [own_site.wait(run, timeout_s=120) for run in runs]
    assert {view["status"] for view in views} == {"Completed"}, [view["verdict"] for view in views]
    listed = slurm.command("squeue", "-h", "-t", "all", "-o", "%F %j").splitlines()
    arrays = {line.split()[0] for line in listed if line.split()[1].startswith("small@muster-pool-")}
    # One for the node that the first run brought, one for those that came behind it.
    assert 1 <= len(arrays) <= 2 and not any(run in line for run in runs for line in listed)
    hosts = {rank["node"] for rank in views[-1]["attempts"][0]["ranks"]}
    assert hosts == {"small-0", "small-1"}
    wait_until(lambda: not tasks(slurm), 60, "the nodes to leave")
    # The next run brings a node again.
    again = own_site.run(command="echo again", compute="small")
    assert own_site.wait(again, timeout_s=120)["status"] == "Completed"


def test_a_pool_outlives_its_server_and_is_given_back_with_its_cluster(own_site: Site, slurm: SlurmSite):
    own_site.client.create_cluster("kept", "slurm-pool", OPTIONS | {"max_nodes": 1, "cpus": 1, "min_nodes": 1})
    wait_until(lambda: any("RUNNING" in line for line in tasks(slurm)), 60, "the node")
    before = tasks(slurm)
    run = own_site.run(command="sleep 2; echo done", compute="kept")
    wait_until(lambda: own_site.client.run(run).status == "Running", 60, "the run")
    own_site.server().kill()
    assert own_site.wait(run, timeout_s=120)["status"] == "Completed"
    assert tasks(slurm) == before
    own_site.client.delete_cluster("kept")
    wait_until(lambda: not tasks(slurm), 60, "the node to be given back")
