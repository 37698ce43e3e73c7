"""MPI jobs in containers: the image's own mpirun, from container to container."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.conftest import wait_until
from tests.integration.containers.conftest import MACHINE, containers
from tests.integration.mpi.conftest import MpiSite, mpi_workspace

SUMS = [f"{rank} 4 6 {rank} 4 {rank % 2} 2 {rank // 2} {rank % 2} two words\n" for rank in range(4)]


@pytest.fixture(scope="module")
def machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_CONTAINER_ENGINE", "podman")
        patch.setenv("MUSTER_CONTAINER_ARGS", MACHINE)
        patch.setenv("MUSTER_CONTAINER_BUILD_ARGS", MACHINE)
        yield


@pytest.fixture(scope="module")
def shared_site(machine: None, mpi_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MpiSite]:
    with mpi_workspace(tmp_path_factory.mktemp("boxes")) as site:
        yield site


@pytest.fixture
def boxes(shared_site: MpiSite) -> Iterator[MpiSite]:
    """A workspace whose agents use podman; a test leaves no container."""
    yield shared_site
    wait_until(lambda: not containers(shared_site), 20.0, "no container left")


def start(site: MpiSite, image: str, command: str = "python fail.py never 0") -> str:
    run = site.mpi(command, environment={"image": image})
    site.wait_for_text(run, "ready")
    assert len(containers(site)) == 2
    return run


def test_two_nodes_are_one_world_with_the_images_open_mpi(boxes: MpiSite, mpi_image: str) -> None:
    command = ["python", "sums.py", "$OMPI_COMM_WORLD_LOCAL_RANK", "two words"]
    run = boxes.mpi(command, environment={"image": mpi_image})
    view = boxes.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert boxes.logs(run) == SUMS
    points = {point.rank: point.value for point in boxes.client.metrics(run) if point.name == "total"}
    assert points == {0: 6, 1: 6, 2: 6, 3: 6}
    boxes.nothing_left(run)


def test_a_killed_rank_is_named(boxes: MpiSite, mpi_image: str) -> None:
    run = boxes.mpi("python fail.py kill 3", environment={"image": mpi_image})
    verdict = boxes.wait(run)["verdict"]
    assert verdict["code"] == "signal"
    assert verdict["message"].startswith("rank 3 on local-1 was ended by SIGKILL")
    boxes.nothing_left(run)


@pytest.mark.parametrize("who", [0, 3])
def test_a_cancelled_rank_has_its_grace_though_the_others_are_gone(boxes: MpiSite, mpi_image: str, who: int) -> None:
    run = start(boxes, mpi_image, f"python fail.py save {who}")
    boxes.client.cancel(run)
    assert boxes.wait(run)["status"] == "Canceled"
    assert boxes.logs(run)[who] == "ready\nsaved\n"
    boxes.nothing_left(run)


@pytest.mark.parametrize("node", ["local-0", "local-1"])
def test_a_container_that_dies_ends_the_gang(boxes: MpiSite, mpi_image: str, node: str) -> None:
    run = start(boxes, mpi_image)
    os.kill(_first_process(boxes, node), signal.SIGKILL)
    verdict = boxes.wait(run)["verdict"]
    assert (verdict["code"], verdict["node"]) == ("signal", node), verdict
    boxes.nothing_left(run)


def test_a_killed_agent_of_the_second_node_leaves_no_container(boxes: MpiSite, mpi_image: str) -> None:
    run = start(boxes, mpi_image)
    boxes.agent("local-1").kill()
    verdict = boxes.wait(run)["verdict"]
    assert (verdict["code"], verdict["node"]) == ("node_lost", "local-1")
    boxes.nothing_left(run)


def test_an_mpirun_of_another_kind_than_the_images_library_is_refused(boxes: MpiSite, mpi_image: str) -> None:
    folder = boxes.folder / "box"
    folder.mkdir()
    (folder / "mpirun").write_text("#!/bin/sh\necho 'HYDRA build details:\n    Version:    4.2.1'\n")
    (folder / "mpirun").chmod(0o755)
    (folder / "Dockerfile").write_text(f"FROM {mpi_image}\nCOPY mpirun /usr/local/bin/mpirun\n")
    run = boxes.mpi("true", environment={"build": {"path": str(folder)}})
    verdict = boxes.wait(run)["verdict"]
    assert verdict["code"] == "launcher_missing", verdict
    said = "/usr/local/bin/mpirun is MPICH 4.2.1, but mpi4py of the image (.*) loads Open MPI 4.1.4"
    found = re.search(said, verdict["message"])
    assert found, verdict["message"]
    subprocess.run(["podman", "rmi", "--force", f"localhost/{found[1]}"], check=True, capture_output=True)


def _first_process(site: MpiSite, node: str) -> int:
    """The keeper inside the container of a node, as the host numbers it."""
    mark = site.nursery(node).environ()["MUSTER_NODE_MARK"]
    command = ["podman", "ps", "--filter", f"label=muster.mark={mark}", "--format", "{{.Names}}"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    command = ["podman", "inspect", "--format", "{{.State.Pid}}", name]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
