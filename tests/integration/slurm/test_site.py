"""What people of a Slurm site expect to find on a run, and to pass on to Slurm."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import job_of, muster
from tests.sites.slurm import SlurmSite

from muster import errors

MUSTER = str(Path(sys.executable).with_name("muster"))


def test_a_run_that_waits_has_its_job_and_the_start_that_slurm_expects(site: Site, cluster: Callable[..., str]):
    cluster("later", sbatch=["--begin=now+2hours"])
    run_id = site.run(command="true", compute="later")

    def started() -> dict[str, Any] | None:
        view = site.view(run_id)
        return view if view["attempts"] and view["attempts"][-1].get("queue_job", {}).get("reason") else None

    view = wait_until(started, 20, "the reason")
    job = view["attempts"][-1]["queue_job"]
    assert (job["partition"], job["state"], job["reason"]) == ("batch", "PENDING", "BeginTime")
    assert job["name"].startswith(f"{run_id}.1@muster-")
    assert 6_000 < job["starts_at"] - time.time() <= 7_200
    listed = muster("ps", "--wide", "--columns", "run,job,partition,reason").splitlines()
    assert next(line for line in listed if run_id in line).split()[1:] == [job["id"], "batch", "BeginTime"]
    assert job["id"] in muster("ps", "--wide")
    shown = " ".join(muster("show", run_id).split())
    assert f"job id {job['id']} queue PENDING (BeginTime), partition batch" in shown
    site.client.cancel(run_id)
    site.wait(run_id)


def test_what_a_cluster_passes_on_is_on_its_jobs_and_checked_against_the_site(
    site: Site, slurm: SlurmSite, cluster: Callable[..., str]
):
    slurm.command("scontrol", "create", "reservation", "ReservationName=monday", "StartTime=now", "Duration=60",
                  "Users=root", "Nodes=n1")  # fmt: skip
    try:
        cluster(
            "passing-on",
            partition="batch,short",
            reservation="monday",
            licenses="fluent:2",
            comment="night shift",
            mail_type="fail",
            mail_user="ada@site.invalid",
        )
        run_id = site.run(command="exec sleep 600", compute="passing-on")
        view = site.wait(run_id, "Running")
        said = slurm.command("scontrol", "show", "job", job_of(slurm, run_id))
        for part in ("Partition=batch", "Reservation=monday", "Licenses=fluent:2", "Comment=night shift",
                     "MailUser=ada@site.invalid", "MailType="):  # fmt: skip
            assert part in said, said
        assert view["attempts"][0]["nodes"][0]["name"] == "n1"
        for options, message, known in (
            ({"reservation": "friday"}, "reservation: Slurm would refuse", "reservations of this site: monday"),
            ({"licenses": "fluent:9"}, "licenses: Slurm would refuse", "licences of this site: fluent"),
            ({"partition": "batch,moon"}, "no partition 'moon'", "batch, short, urgent"),
        ):
            with pytest.raises(errors.JobError, match=message) as refused:
                cluster("never-passing", **options)
            assert known in refused.value.hint
        site.client.cancel(run_id)
        site.wait(run_id)
    finally:
        wait_until(
            lambda: not slurm.command("scontrol", "delete", "ReservationName=monday"), 20, "the reservation's end"
        )


def test_a_site_without_accounting_says_so_on_the_run(site: Site):
    run_id = site.run(command="true", compute="hpc")
    site.wait(run_id)
    note = wait_until(lambda: site.view(run_id)["attempts"][0]["queue_job"].get("usage_note"), 20, "the note")
    assert "accounting" in note
    assert "used not known: this site's accounting does not answer" in " ".join(muster("show", run_id).split())


def test_a_check_walks_the_whole_way_and_says_what_is_wrong(site: Site, slurm: SlurmSite, cluster: Callable[..., str]):
    said = muster("cluster", "check", "hpc")
    assert "ok    reach       Slurm 22.05; Slurmctld(primary)" in said
    assert "2 nodes added up on n" in said
    assert "ok    folder" in said
    cluster("lost", connection="tls", server_address="::1")
    done = subprocess.run([MUSTER, "cluster", "check", "lost"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "fail  gang" in done.stdout
    assert "its agent cannot reach the server: https://[::1]:" in " ".join(done.stdout.split())
    assert "`muster cluster set lost server_address=ADDRESS`" in " ".join(done.stdout.split())
