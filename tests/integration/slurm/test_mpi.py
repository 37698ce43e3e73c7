"""MPI jobs on a real Slurm: through Muster's own mpirun, and through Slurm's PMIx."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import process, wait_until
from tests.integration.mpi.conftest import SCRIPT, python_with
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import job_of, make_cluster
from tests.sites.slurm import SlurmSite

from muster.client.submit import submit
from muster.errors import JobError
from muster.job.explain import make_spec

__all__ = ["python_with"]

SUM = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.rank, w.size, w.allreduce(w.rank), flush=True)"
SAVES = """
import os, signal, time
from mpi4py import MPI
def save(*_):
    time.sleep(1)
    print("saved", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
MPI.COMM_WORLD.barrier()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="session")
def pmix(slurm: SlurmSite, shared: Site) -> str:
    """A cluster whose MPI ranks are started by srun."""
    if slurm.command("srun", "--mpi=pmix", "echo", "there") != "there":
        pytest.skip("this Slurm has no PMIx (apt-get install slurm-wlm-basic-plugins libpmix-dev)")
    return make_cluster(shared, "pmix", mpi="pmix")


def test_ranks_of_nodes_that_share_a_host_name_reduce_together_and_see_nothing_of_slurm(site: Site) -> None:
    view = site.wait(mpi(site, f'python -c "{SUM}"; env | grep -E "^SLURM" || echo clean', "hpc", nodes=3))
    assert view["status"] == "Completed", view["verdict"]
    assert printed(site, view) == [f"{rank} 6 15\nclean\n" for rank in range(6)]


def test_srun_starts_ranks_that_pmix_serves_and_that_see_little_of_slurm(site: Site, pmix: str) -> None:
    names = "'%s' % sorted(name for name in os.environ if name.startswith('SLURM'))"
    view = site.wait(mpi(site, f'python -c "import os; {SUM}; print({names})"', pmix, nodes=3))
    assert view["status"] == "Completed", view["verdict"]
    seen = ["SLURM_JOBID", "SLURM_NODELIST", "SLURM_PMIXP_ABORT_AGENT_PORT", "SLURM_PMIX_MAPPING_SERV"]
    assert [text.splitlines()[0] for text in printed(site, view)] == [f"{rank} 6 15" for rank in range(6)]
    assert {text.splitlines()[1] for text in printed(site, view)} == {str([*seen, "SLURM_STEPID", "SLURM_STEP_ID"])}
    assert {rank["exit_code"] for rank in view["attempts"][0]["ranks"]} == {0}
    assert "export MUSTER_AGENT_MPI=pmix\n" in site.log(view["id"], "logs/submitted.sh").decode()


def test_pmix_serves_the_systems_open_mpi_4(site: Site, pmix: str, python_with: Callable[..., Path]) -> None:
    if not Path("/usr/bin/mpirun").exists():
        pytest.skip("the system has no Open MPI (openmpi-bin)")
    view = site.wait(mpi(site, f'python -c "{SUM}"', pmix, python=python_with("mpi4py")))
    assert view["status"] == "Completed", view["verdict"]
    assert printed(site, view) == [f"{rank} 4 6\n" for rank in range(4)]


def test_a_rank_that_fails_under_pmix_is_the_verdict(site: Site, pmix: str) -> None:
    run_id = mpi(site, "python fail.py exit 3", pmix, code=str(SCRIPT))
    verdict = site.wait(run_id)["verdict"]
    assert (verdict["code"], verdict["rank"]) == ("exit_code", 3), verdict
    assert verdict["message"].startswith(f"rank 3 on {verdict['node']} exited with code 7")
    nothing_left(run_id)


def test_ranks_under_pmix_have_time_to_save_when_the_run_is_cancelled(site: Site, slurm: SlurmSite, pmix: str) -> None:
    (site.folder / "saves.py").write_text(SAVES)
    run_id = mpi(site, "python saves.py", pmix, code="saves.py")
    wait_until(lambda: _all_say(site, run_id, "ready\n"), 30, "the ranks")
    job = job_of(slurm, run_id)
    site.client.cancel(run_id)
    view = site.wait(run_id)
    assert view["status"] == "Canceled"
    assert printed(site, view) == ["ready\nsaved\n"] * 4
    wait_until(lambda: job not in slurm.command("squeue", "-h", "-o", "%i").split(), 30, "the end of the job")
    nothing_left(run_id)


def test_a_killed_srun_ends_its_ranks_and_leaves_no_stand_in(site: Site, pmix: str) -> None:
    (site.folder / "saves.py").write_text(SAVES)
    run_id = mpi(site, "python saves.py", pmix, code="saves.py", retry={"platform": 0})
    wait_until(lambda: _all_say(site, run_id, "ready\n"), 30, "the ranks")

    def pid() -> int | None:
        ranks = site.view(run_id)["attempts"][0]["ranks"]
        return next(rank["pid"] for rank in ranks if rank["role"] == "launcher")

    process(pid, "srun").kill()
    view = site.wait(run_id)
    assert view["status"] == "Failed"
    assert "was ended by SIGKILL" in view["verdict"]["message"]
    nothing_left(run_id)


def test_a_plugin_that_srun_does_not_know_is_refused(site: Site) -> None:
    with pytest.raises(JobError, match="srun does not know --mpi=pmix_v99") as refused:
        make_cluster(site, "odd", mpi="pmix_v99")
    assert "Muster's own mpirun" in refused.value.hint


def mpi(site: Site, command: str, compute: str, nodes: int = 2, python: object = sys.executable, **more: Any) -> str:
    job = {
        "command": command,
        "compute": compute,
        "resources": {"instance_count": nodes},
        "distribution": {"type": "mpi", "process_count_per_instance": 2},
        **more,
    }
    return submit(site.client, make_spec(job), site.folder, python=str(python)).id


def printed(site: Site, view: dict[str, Any]) -> list[str]:
    ranks = [rank for rank in view["attempts"][-1]["ranks"] if rank["role"] == "worker"]
    return [site.log(view["id"], rank["log"]).decode() for rank in ranks]


def nothing_left(run_id: str) -> None:
    """No stand-in, rank or helper of the run is alive."""

    def left() -> list[psutil.Process]:
        found = psutil.process_iter(["cmdline", "status"])
        return [process for process in found if any(f"{run_id}." in word for word in process.info["cmdline"] or ())]

    wait_until(lambda: not left(), 20.0, f"the end of all processes of {run_id}")


def _all_say(site: Site, run_id: str, text: str) -> bool:
    logs = [file["path"] for file in site.view(run_id)["files"] if "std_log_process" in file["path"]]
    return len(logs) == 4 and all(site.log(run_id, log).decode() == text for log in logs)
