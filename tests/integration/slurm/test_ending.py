"""How runs end on a real Slurm: by Muster's hand, by Slurm's, and by accident."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import OPTIONS, job_of, muster
from tests.sites.slurm import SlurmSite

from muster import errors
from muster.wire.stream import Note

GANG = {"distribution": {"type": "pytorch", "process_count_per_instance": 1}, "resources": {"instance_count": 2}}


def test_cancel_gives_the_ranks_their_grace_and_then_the_nodes_back(site: Site, slurm: SlurmSite, tmp_path: Path):
    command = f"trap 'touch {tmp_path}/told.$RANK; exit 0' TERM; touch {tmp_path}/up.$RANK; while :; do sleep 0.1; done"
    run_id = site.run(command=command, compute="hpc", **GANG)
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2, 20, "the traps")
    job = job_of(slurm, run_id)
    site.client.cancel(run_id)
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Canceled", "cancelled")
    assert sorted(path.name for path in tmp_path.glob("told.*")) == ["told.0", "told.1"]
    wait_until(lambda: job not in slurm.command("squeue", "-h", "-o", "%i").split(), 20, "the end of the job")


def test_a_run_that_waits_says_why_in_plain_words_and_can_be_cancelled(
    site: Site, slurm: SlurmSite, cluster: Callable[..., str]
):
    cluster("held", sbatch=["--hold"])
    run_id = site.run(command="true", compute="held")
    view = wait_until(lambda: _view_with(site, run_id, "held by its user"), 20, "the reason")
    job = job_of(slurm, run_id)
    assert view["status"] == "Provisioning"
    assert view["reason"] == (
        f"in the queue of Slurm as job {job}: is held by its user: `scontrol release` lets it go (JobHeldUser)"
    )
    site.client.cancel(run_id)
    assert site.wait(run_id)["status"] == "Canceled"
    wait_until(lambda: job not in slurm.command("squeue", "-h", "-o", "%i").split(), 20, "the end of the job")


def test_scancel_from_outside_is_a_cancelled_run_that_says_so(site: Site, slurm: SlurmSite):
    run_id = site.run(command="echo up; exec sleep 600", compute="hpc", **GANG)
    site.wait(run_id, "Running")
    ranks = [site.rank(run_id, 0), site.rank(run_id, 1)]
    job = job_of(slurm, run_id)
    slurm.command("scancel", job)
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Canceled", "cancelled"), view["verdict"]
    assert view["verdict"]["message"] == f"Slurm job {job} was cancelled outside Muster (scancel)"
    assert view["attempts"][0]["job_id"] == job
    shown = " ".join(muster("show", run_id).split())
    assert f" job id {job} why Slurm job {job} was cancelled outside Muster (scancel) " in shown
    assert f"Slurm job {job} was cancelled outside Muster (scancel)" in muster("ps")
    notes = [item.event.text for item in site.client.stream(run_id, follow=False) if isinstance(item.event, Note)]
    assert notes and not any(f"{run_id}.1." in text for text in notes), notes
    assert [site.log(run_id, rank["log"]) for rank in view["attempts"][0]["ranks"]] == [b"up\n", b"up\n"]
    for rank in ranks:
        wait_until(lambda rank=rank: not _lives(rank), 10, "the end of the ranks")


def test_scancel_of_a_job_that_waits_is_a_cancelled_run_too(site: Site, slurm: SlurmSite, cluster: Callable[..., str]):
    cluster("held-too", sbatch=["--hold"])
    run_id = site.run(command="true", compute="held-too")
    wait_until(lambda: run_id in slurm.command("squeue", "-h", "-o", "%j"), 20, "the job")
    slurm.command("scancel", job_of(slurm, run_id))
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Canceled", "cancelled"), view["verdict"]


def test_the_jobs_own_time_limit_ends_it_with_grace(site: Site):
    run_id = site.run(command="exec sleep 600", compute="hpc", limits={"timeout": 2})
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "timeout"), view["verdict"]


def test_what_slurm_refuses_is_refused_in_its_words(site: Site, slurm: SlurmSite, cluster: Callable[..., str]):
    slurm.command("scontrol", "create", "PartitionName=passing", "Nodes=n1", "State=UP")
    cluster("picky", partition="passing")
    slurm.command("scontrol", "delete", "PartitionName=passing")
    run_id = site.run(command="true", compute="picky")
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "bad_input"), view["verdict"]
    assert "Slurm refuses the job" in view["verdict"]["message"]
    with pytest.raises(errors.JobError, match=r"limits\.timeout is 7200 s, and the partition batch allows 3600 s"):
        site.run(command="true", compute="hpc", limits={"timeout": 7200})


def test_a_cluster_that_the_site_could_never_serve_is_refused_and_its_share_is_shown(
    site: Site, cluster: Callable[..., str]
):
    for options, why in {
        ("gres", "gpu:9"): "gres: Slurm would refuse every job with gpu:9: sbatch: Requested node configuration",
        ("gres", "fpga:1"): "gres: Slurm would refuse every job with fpga:1: sbatch: Invalid generic resource",
        (
            "sbatch",
            "--licenses=none",
        ): "sbatch: Slurm would refuse every job with --licenses=none: sbatch: Invalid license",
        ("constraint", "blue"): "constraint: Slurm would refuse every job with blue: sbatch: Invalid feature",
        ("time", 120): "time: 2 h is more than the partition batch allows, 1 h",
    }.items():
        with pytest.raises(errors.JobError, match=re.escape(why)):
            cluster("never", **dict([options]))
    made = site.client.create_cluster("share", "slurm", {**OPTIONS, "cpus": 2, "account": "nobodys"})
    assert any("accounts cannot be listed, so nobodys is handed on unchecked" in text for text in made.notices)
    assert "2 CPUs" in muster("cluster", "show", "share")


def test_a_dry_run_plans_for_the_cluster_with_placeholders_that_say_so(site: Site, cluster: Callable[..., str]):
    cluster("wide", cpus=2)
    (site.folder / "train.py").write_text("print()")
    command = ("run", "train.py", "--nodes", "2", "--procs", "1", "--compute", "wide", "--dry-run")
    planned = muster(*command)
    assert "127.0.0.1" not in planned.split("#!/bin/bash")[0]
    assert "node 1: NODE_1 (ADDRESS_OF_NODE_1, GPUs 0,1)" in planned
    assert "MASTER_ADDR=ADDRESS_OF_NODE_0" in planned
    assert "notice: NODE_0, ADDRESS_OF_NODE_0 and ports stand for those of the nodes that wide gives the run" in planned
    assert "#SBATCH --nodes=2\n" in planned


def test_a_python_that_the_nodes_do_not_have_is_said(site: Site, cluster: Callable[..., str]):
    cluster("bare", python="/nowhere/python")
    run_id = site.run(command="true", compute="bare", retry={"platform": 0})
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "platform"), view["verdict"]
    assert "/nowhere/python" in view["verdict"]["message"]


def _view_with(site: Site, run_id: str, part: str) -> dict[str, object] | None:
    view = site.view(run_id)
    return view if part in view["reason"] else None


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
