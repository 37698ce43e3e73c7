"""Everything as an ordinary user: server, agents and containers, with rootless podman."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import processes_of, wait_until
from tests.integration.containers.conftest import MACHINE
from tests.integration.containers.ordinary_user import ID, OrdinaryUser, ordinary_user
from tests.integration.mpi.conftest import SCRIPT

JOB = """
code: .
command: python sums.py uid $(id -u)
environment: {{image: "{image}"}}
resources: {{instance_count: 2, docker_args: "--cpus 1"}}
distribution: {{type: mpi, process_count_per_instance: 2}}
"""
SETTINGS = {"MUSTER_CONTAINER_ENGINE": "podman", "MUSTER_CONTAINER_ARGS": MACHINE}


@pytest.fixture(autouse=True)
def root() -> None:
    if os.getuid() != 0:
        pytest.skip("every other test is run by an ordinary user already")
    if shutil.which("podman") is None:
        pytest.skip("not installed: podman")


@pytest.fixture
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user(65536, SETTINGS) as made:
        yield made


def job(user: OrdinaryUser, image: str) -> Path:
    folder = user.home / "w"
    shutil.copytree(SCRIPT, folder)
    (folder / "job.yml").write_text(JOB.format(image=image))
    for path in (folder, *folder.rglob("*")):
        os.chown(path, ID, ID)
    user.run("muster", "init", folder=folder, check=True)
    return folder


def end(user: OrdinaryUser, folder: Path) -> None:
    user.run("muster", "down", "--force", folder=folder)
    wait_until(lambda: not processes_of(folder), 20.0, "the end of the user's processes")


def test_an_ordinary_users_mpi_job_runs_in_containers(mpi_root: Path, user: OrdinaryUser) -> None:
    with mpi_root.open("rb") as archive:
        user.run("podman", "import", "-", "localhost/openmpi:1", given=archive, check=True)
    folder = job(user, "localhost/openmpi:1")
    try:
        done = user.run("muster", "run", "job.yml", folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        for rank in range(4):
            assert f"[rank {rank}] {rank} 4 6 {rank} 4 {rank % 2} 2 {rank // 2} uid {ID}\n" in done.stdout
        kept = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        assert ("podman leaves out --cpus" in done.stdout + done.stderr) is not kept
        assert user.run("podman", "ps", "--all", "--quiet", check=True).stdout == ""
    finally:
        end(user, folder)


def test_a_user_without_ids_for_containers_is_told_what_to_do() -> None:
    with ordinary_user(0, SETTINGS) as user:
        folder = job(user, "localhost/none:1")
        try:
            done = user.run("muster", "run", "job.yml", folder=folder)
            assert done.returncode != 0
            assert "the user trainer has no range of user ids for containers" in done.stdout + done.stderr
            assert "usermod --add-subuids" in done.stdout + done.stderr
        finally:
            end(user, folder)
