"""Per-rank isolation of GPUs."""

from __future__ import annotations

import pytest

from muster.job.parts import Distribution, Mpi, PyTorch, Resources, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.plan import plan
from muster.wire.node.plan import Plan, Slot


def planned(distribution: Distribution, gpus: tuple[str, ...], isolation: bool = True, **env: str) -> Plan:
    spec = JobSpec(
        command="true",
        distribution=distribution,
        resources=Resources(gpu_isolation=isolation),
        environment_variables=env,
    )
    return plan(spec, [Slot("gpu-0", "10.0.0.4", 8, gpus, ports=(6105, 6106))], run_id="r", attempt=1)


def seen(made: Plan) -> list[str]:
    return [rank.env["CUDA_VISIBLE_DEVICES"] for rank in made.ranks if rank.role != "launcher"]


@pytest.mark.parametrize(
    ("ranks", "gpus", "expected"),
    [
        (2, ("0", "1"), ["0", "1"]),
        (2, ("0", "1", "2", "3"), ["0,1", "2,3"]),
        (2, ("5", "6", "7"), ["5", "6"]),
        (3, ("0", "1"), ["0", "1", "0"]),
    ],
)
def test_each_rank_sees_its_own_share(ranks: int, gpus: tuple[str, ...], expected: list[str]) -> None:
    assert seen(planned(PyTorch(process_count_per_instance=ranks), gpus)) == expected
    assert seen(planned(Mpi(process_count_per_instance=ranks), gpus)) == expected


def test_without_it_every_rank_sees_all() -> None:
    assert seen(planned(PyTorch(process_count_per_instance=2), ("0", "1"), isolation=False)) == ["0,1", "0,1"]


def test_one_process_on_a_node_sees_all_and_parameter_servers_none() -> None:
    assert seen(planned(PyTorch(), ("0", "1"))) == ["0,1"]
    assert seen(planned(TensorFlow(worker_count=1, parameter_server_count=1), ("0", "1"))) == ["0,1", ""]


def test_it_is_told_and_the_users_variable_wins() -> None:
    made = planned(PyTorch(process_count_per_instance=2), ("0", "1"), CUDA_VISIBLE_DEVICES="1")
    assert seen(made) == ["1", "1"]
    assert any("gpu_isolation: each rank sees its own share" in text for text in made.notices)


def test_a_run_that_shares_a_gpu_sees_it_and_how_much_of_it_is_its_own() -> None:
    spec = JobSpec(command="true", resources=Resources(gpus_per_node=0.25))
    (rank,) = plan(spec, [Slot("gpu-0", "10.0.0.4", 8, ("3",), ports=())], run_id="r", attempt=1).ranks
    assert (rank.env["CUDA_VISIBLE_DEVICES"], rank.env["MUSTER_GPU_SHARE"]) == ("3", "0.25")
    assert rank.env["TF_FORCE_GPU_ALLOW_GROWTH"] == "true" and rank.env["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.25"
    (rank,) = planned(PyTorch(process_count_per_instance=1), ("0",)).ranks
    assert "MUSTER_GPU_SHARE" not in rank.env
