"""Runs that were submitted together, on a real Slurm: one job array, with a throttle, also across servers."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import OPTIONS
from tests.sites.slurm import SlurmSite

from muster.client.submit import submit_many
from muster.job.explain import make_spec


def submit(site: Site, count: int, command: str, compute: str) -> list[str]:
    variables = [{"ARRAY_VALUE": str(number)} for number in range(count)]
    specs = [make_spec({"command": command, "compute": compute, "environment_variables": item}) for item in variables]
    return [view.id for view in submit_many(site.client, specs, site.folder, python=sys.executable)]


def arrays_of(slurm: SlurmSite, run: str) -> dict[str, list[str]]:
    """The arrays that are named after a run: the states of their tasks."""
    found: dict[str, list[str]] = {}
    for line in slurm.command("squeue", "-h", "-r", "-t", "all", "-o", "%F %T %j").splitlines():
        array, state, name = line.split()
        if name.startswith(f"{run}.1+"):
            found.setdefault(array, []).append(state)
    return found


def test_runs_that_were_submitted_together_are_one_array_with_a_throttle(
    site: Site, slurm: SlurmSite, cluster: Callable[..., str]
):
    name = cluster("throttled", array_limit=2)
    go = site.folder / "array-go"
    runs = submit(site, 5, f"while [ ! -e {go} ]; do sleep 0.1; done; echo value $ARRAY_VALUE", name)
    first = min(runs)

    def two_run() -> bool:
        states = [state for found in arrays_of(slurm, first).values() for state in found]
        return states.count("RUNNING") == 2 and states.count("PENDING") == 3

    wait_until(two_run, 60, "two of the five")
    throttled = "too many tasks of its array run (JobArrayTaskLimit)"
    wait_until(lambda: any(throttled in site.view(run)["reason"] for run in runs), 60, "the reason")
    go.touch()
    views = [site.wait(run, timeout_s=120) for run in runs]
    assert [view["status"] for view in views] == ["Completed"] * 5, [view["verdict"] for view in views]
    assert [site.log(run) for run in runs] == [f"value {number}\n".encode() for number in range(5)]
    (array,) = arrays_of(slurm, first)
    assert {view["attempts"][0]["job_id"] for view in views} == {f"{array}_{number}" for number in range(5)}
    script = site.client.read_file(runs[0], "logs/submitted.sh").decode()
    assert "#SBATCH --array=0-4%2\n" in script


def test_an_array_outlives_its_server_and_one_of_its_runs_is_cancelled_alone(own_site: Site, slurm: SlurmSite):
    own_site.client.create_cluster("two", "slurm", OPTIONS | {"array_limit": 2})
    go = own_site.folder / "go"
    runs = submit(own_site, 4, f"while [ ! -e {go} ]; do sleep 0.1; done", "two")
    first = min(runs)
    wait_until(lambda: arrays_of(slurm, first), 60, "the array")
    own_site.server().kill()
    wait_until(lambda: sum(own_site.client.run(run).status == "Running" for run in runs) == 2, 60, "two runs")
    wait_until(lambda: all(own_site.client.run(run).attempts[0].job_id for run in runs), 60, "the numbers of the jobs")
    task = {run: str(own_site.client.run(run).attempts[0].job_id) for run in runs}
    waits = next(run for run in runs if own_site.client.run(run).status == "Provisioning")
    slurm.command("scancel", task[waits])
    assert own_site.wait(waits)["verdict"]["code"] == "cancelled"
    go.touch()
    views = [own_site.wait(run, timeout_s=120) for run in runs if run != waits]
    assert [view["status"] for view in views] == ["Completed"] * 3, [view["verdict"] for view in views]
    (array,) = arrays_of(slurm, first)
    # Of a task that is cancelled while it waits Slurm keeps no record.
    wait_until(lambda: arrays_of(slurm, first) == {array: ["COMPLETED"] * 3}, 60, "the end of the jobs")
