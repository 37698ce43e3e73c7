"""A site that keeps accounts: a private slurmdbd and its database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import OPTIONS, muster, open_site
from tests.sites.slurm import ACCOUNTING_PROGRAMS, SlurmSite, missing

from muster import errors


@pytest.fixture
def accounted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    lacking = [*missing(), *missing(ACCOUNTING_PROGRAMS)]
    if lacking:
        pytest.skip(f"{', '.join(lacking)} is not installed (apt-get install slurmdbd mariadb-server)")
    slurm = SlurmSite(num_nodes=2, accounting=True)
    try:
        slurm.start()
        yield from open_site(slurm, workspace, monkeypatch)
    finally:
        slurm.close()


def test_what_a_job_used_is_on_its_run_and_accounts_are_checked(accounted: Site):
    python = shutil.which("python3")
    command = f"{python} -c 'x = bytearray(100_000_000); import time; time.sleep(3)'"
    accounted.client.create_cluster("lab", "slurm", {**OPTIONS, "account": "lab", "qos": "normal"})
    run_id = accounted.run(command=command, compute="lab")
    view = accounted.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    job = wait_until(lambda: _with_usage(accounted, run_id), 200, "the accounts")
    assert (job["account"], job["qos"]) == ("lab", "normal")
    assert (job["usage"]["state"], job["usage"]["exit_code"]) == ("COMPLETED", "0:0")
    assert job["usage"]["elapsed_s"] >= 3
    assert job["usage"]["memory_peak_bytes"] > 90_000_000
    shown = " ".join(muster("show", run_id).split())
    assert "account lab, QOS normal" in shown
    assert "of memory at most, COMPLETED with exit code 0:0" in shown

    with pytest.raises(errors.JobError, match="account: you may not charge 'nobodys' at this site") as refused:
        accounted.client.create_cluster("never", "slurm", {**OPTIONS, "account": "nobodys"})
    assert refused.value.hint == "Your accounts: lab, root."


def _with_usage(site: Site, run_id: str) -> dict[str, object] | None:
    job = site.view(run_id)["attempts"][0]["queue_job"]
    return job if job.get("usage") else None
