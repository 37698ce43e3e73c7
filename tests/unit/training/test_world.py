"""Which rank a process is, from what its launcher says."""

import socket
from pathlib import Path

import pytest
import torch

from muster.runtime.gloo import gloo_rests
from muster.runtime.ranks import RankInfo, meeting_point, rank_info
from muster.training.world import join

TORCH = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
OPEN_MPI = {
    f"OMPI_COMM_WORLD_{name}": value
    for name, value in zip(("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"), "3812", strict=True)
}


def test_torchrun_and_muster_per_process():
    assert rank_info(TORCH) == RankInfo(3, 8, 1, 2, "torch")


def test_open_mpi():
    assert rank_info(OPEN_MPI) == RankInfo(3, 8, 1, 2, "mpi")


def test_mpich():
    names = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert rank_info(names) == RankInfo(3, 8, 1, 2, "mpi")


def test_one_process_for_each_node_is_no_rank_by_itself():
    """Muster's per-node variables are for a launcher; without one each node would train alone, unnoticed."""
    assert rank_info({"RANK": "0", "WORLD_SIZE": "1"}) == RankInfo()
    with pytest.raises(ValueError, match=r"one process on each of 2 nodes.*torchrun.*process_count_per_instance"):
        rank_info({"RANK": "1", "WORLD_SIZE": "2"})


def test_a_bare_mpirun_on_one_machine_meets_on_it():
    assert meeting_point(RankInfo(0, 2, 0, 2, "mpi"), {}) == ("127.0.0.1", 29500)
    assert meeting_point(RankInfo(0, 2, 0, 1, "mpi"), {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "6105"}) == (
        "10.0.0.1",
        6105,
    )


def test_a_bare_mpirun_on_several_nodes_is_told_what_is_missing():
    with pytest.raises(
        ValueError, match=r"MASTER_ADDR is not set, and the 8 ranks are on several nodes.*-x MASTER_ADDR"
    ):
        meeting_point(RankInfo(3, 8, 1, 2, "mpi"), {})


def test_a_port_that_another_training_has_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        mpi = {
            f"OMPI_COMM_WORLD_{name}": value for name, value in {"RANK": "0", "SIZE": "2", "LOCAL_SIZE": "2"}.items()
        }
        with pytest.raises(ValueError, match=f"the port {port} is in use.*MASTER_PORT"):
            join({**mpi, "MASTER_PORT": str(port)})


def test_alone_there_is_nobody_to_ask():
    world = join({})
    assert (world.rank, world.size, world.launcher) == (0, 1, "none")
    assert world.mean(torch.tensor([1.0, 3.0])).tolist() == [1.0, 3.0]
    assert world.any(True) and not world.any(False)
    assert world.gather("x") == ["x"]
    world.share([torch.ones(1)])
    world.leave()


def thread(folder: Path, number: int, name: str, state: str) -> None:
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "stat").write_text(f"{number} ({name}) {state} 1 2 3")


def testgloo_rests_when_each_of_its_threads_sleeps(tmp_path: Path) -> None:
    thread(tmp_path, 1, "python (R)", "R")
    thread(tmp_path, 2, "pt_gloo_runloop", "S")
    (tmp_path / "4").mkdir()
    assert gloo_rests(tmp_path)
    thread(tmp_path, 3, "pt_gloo_runloop", "R")
    assert not gloo_rests(tmp_path)
