"""An MPI job in a container: which mpirun of an image is taken, and what its programs run on."""

from __future__ import annotations

import marshal
from pathlib import Path
from typing import Any

import pytest

from muster.agent.refusal import Refusal
from muster.agent.run.mpi.find import Found, find_inside
from muster.agent.run.mpi.layout import Installation, MpiFiles
from muster.environments.caller import Used
from muster.environments.images.command import PODMAN, Engine
from muster.environments.images.probe import Contents
from muster.launch.mpi import MPICH, OPEN_MPI, Kind
from muster.paths import AttemptPaths
from muster.wire.node.containers import Container
from muster.wire.node.plan import MpiHost, NodePlan, RankPlan

OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4\n"
INSIDE = Installation("/usr/bin/python3", Path("/n/runtime/1-keeper"), named=True, own_memory=True)


def used(said: str, library: str = "", **programs: str) -> Used:
    told = {"by": "mpi4py", "text": library} if library else {}
    contents = Contents((3, 11), {}, programs or {"mpirun": "/usr/bin/mpirun"}, said, {}, "/usr/bin/python3", told)
    return Used(Engine(PODMAN, "/usr/bin/podman"), Container(image="box:1"), "sha256:1", contents)


@pytest.mark.parametrize("library", ["", "Open MPI v5.0.1, package: x"])
def test_an_images_mpirun_that_fits_its_library_is_taken(library: str) -> None:
    assert find_inside(used(OPEN_MPI_4, library)) == Found("/usr/bin/mpirun", Kind(OPEN_MPI, "4.1.4"))


def test_an_image_that_has_mpiexec_alone_runs_that() -> None:
    assert find_inside(used("HYDRA build details:\n    Version: 4.2", mpiexec="/opt/mpiexec")) == Found(
        "/opt/mpiexec", Kind(MPICH, "4.2")
    )


@pytest.mark.parametrize(
    ("said", "library", "words"),
    [
        (OPEN_MPI_4, "MPICH Version:      4.2.0", "mpi4py of the image box:1 loads MPICH 4.2.0"),
        ("something else", "", "/usr/bin/mpirun is not an MPI that Muster supports ('something else')"),
    ],
)
def test_an_images_mpirun_that_fits_nothing_is_refused(said: str, library: str, words: str) -> None:
    with pytest.raises(Refusal) as caught:
        find_inside(used(said, library))
    assert words in str(caught.value)
    assert caught.value.event.next


def setting(tmp_path: Path, installation: Installation = INSIDE, kind: Kind | None = None) -> MpiFiles:
    hosts = (MpiHost("a", "127.0.0.1", 0, 1, True), MpiHost("b", "127.0.0.1", 7000, 1, True))
    node = NodePlan(1, "b", "127.0.0.1", (), (), hosts)
    return MpiFiles(
        node, AttemptPaths(tmp_path), Found("/usr/bin/mpirun", kind or Kind(OPEN_MPI, "4.1")), "s", installation
    )


def made(tmp_path: Path) -> dict[str, Any]:
    rank = RankPlan(1, 1, 0, ("python", "train.py"), {}, "user_logs/log.txt", wrapped=True)
    return setting(tmp_path).make([(rank, {"PATH": "/usr/bin"})], "/stop")


def test_the_programs_of_a_container_run_in_the_images_python_from_the_copy_there(tmp_path: Path) -> None:
    made(tmp_path)
    for name, program in (("muster-rank", "rank.py"), ("muster-remote", "remote.py")):
        text = (tmp_path / "mpi" / "bin" / name).read_text()
        assert f"exec /usr/bin/python3 -I -S /n/runtime/1-keeper/muster/agent/run/mpi/{program} {tmp_path}/mpi/" in text
    assert marshal.loads((tmp_path / "mpi" / "ranks").read_bytes())["library"] == "/n/runtime/1-keeper"


def test_a_container_has_its_name_and_its_shared_memory_from_the_engine(tmp_path: Path) -> None:
    part = made(tmp_path)
    assert setting(tmp_path).hostname == "127.0.0.2"
    assert part["hostname"] is None
    assert not [name for name in part["daemon_env"] if "backing_directory" in name]


def test_only_open_mpi_needs_a_name_for_each_node(tmp_path: Path) -> None:
    assert setting(tmp_path, kind=Kind(MPICH, "4.2")).hostname is None
