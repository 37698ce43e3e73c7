"""A real Slurm for the session, and workspaces with a cluster on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import _end_workspace as end_workspace
from tests.integration.server.conftest import Site
from tests.sites.slurm import SlurmSite, missing

from muster.client.connect import connect
from muster.client.workspace import create_workspace, find_workspace

OPTIONS = {"partition": "batch", "poll_seconds": 0.5, "server_address": "127.0.0.1"}


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmSite]:
    lacking = missing()
    if lacking:
        pytest.skip(f"Slurm is not installed: {', '.join(lacking)} (apt-get install slurmctld slurmd munge)")
    site = SlurmSite()
    try:
        site.start()
        yield site
    finally:
        site.close()


@dataclass
class SlurmWorkspace(Site):
    """A workspace with clusters on Slurm."""

    long_run: str = ""


@pytest.fixture(scope="session")
def shared(slurm: SlurmSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmWorkspace]:
    """One workspace for all tests that leave its server alone."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        for site in open_site(slurm, folder, patch):
            site.long_run = start_long_run(site)
            yield site
        end_workspace(folder)


@pytest.fixture
def site(shared: SlurmWorkspace, slurm: SlurmSite, monkeypatch: pytest.MonkeyPatch) -> SlurmWorkspace:
    """A workspace with the cluster `hpc` on the partition `batch`."""
    monkeypatch.chdir(shared.folder)
    return shared


@pytest.fixture
def own_site(slurm: SlurmSite, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A workspace of the test's own, whose server it may kill."""
    yield from open_site(slurm, workspace, monkeypatch)


def open_site(slurm: SlurmSite, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[SlurmWorkspace]:
    for name, value in slurm.environment.items():
        patch.setenv(name, value)
    found = find_workspace(folder) if (folder / ".muster").exists() else create_workspace(folder, "slurm")
    client = connect(found)
    client.create_cluster("hpc", "slurm", OPTIONS)
    yield SlurmWorkspace(folder, client)
    client.close()


@pytest.fixture
def cluster(site: Site) -> Callable[..., str]:
    """Makes further clusters: `cluster("name", chain=True)`."""
    return partial(make_cluster, site)


SLICES = """
import os, pathlib, signal, sys, time
resume = os.environ.get("MUSTER_RESUME_DIR")
step = int(pathlib.Path(resume, "step").read_text()) if resume else 0
print("from", step, flush=True)
if step:
    sys.exit(0)
def save(*_):
    part = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "tmp-one")
    part.mkdir()
    (part / "step").write_text("7")
    part.rename(part.with_name("one"))
    time.sleep(1)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
time.sleep(300)
"""


def start_long_run(site: Site) -> str:
    """A run that Slurm's time limit cuts; it takes half a minute, so it goes beside the other tests."""
    make_cluster(site, "chained", partition="short", chain=True, signal_seconds=15)
    (site.folder / "slices.py").write_text(SLICES)
    return site.run(command="exec python slices.py", code=".", compute="chained", limits={"timeout": 600})


def make_cluster(site: Site, name: str, **options: Any) -> str:
    site.client.create_cluster(name, "slurm", OPTIONS | options)
    return name


def muster(*words: str) -> str:
    """What a command prints, in the folder where the test is."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("muster")), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def job_of(slurm: SlurmSite, run_id: str) -> str:
    """The id of the Slurm job of a run."""
    listed = [line.split() for line in slurm.command("squeue", "-h", "-o", "%i %j").splitlines()]
    return next(job for job, name in listed if run_id in name)
