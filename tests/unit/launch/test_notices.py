from __future__ import annotations

from muster.job.parts import Distribution, PyTorch, Resources, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.plan import plan, sample_slots
from muster.wire.node.plan import Slot


def notices(
    distribution: Distribution | None,
    nodes: int = 1,
    cpus: int = 8,
    gpus: tuple[str, ...] = (),
    slots: tuple[Slot, ...] | None = None,
    **env: str,
) -> str:
    spec = JobSpec(
        command="true",
        distribution=distribution,
        resources=Resources(instance_count=nodes),
        environment_variables=env,
    )
    made = plan(spec, slots or sample_slots(spec, cpus=cpus, gpus=gpus), run_id="r", attempt=1)
    return "\n".join(made.notices)


def test_a_plain_job_has_nothing_to_be_told() -> None:
    assert notices(None) == ""


def test_nccl_without_gpus_is_a_warning() -> None:
    nccl = PyTorch(communication_backend="Nccl")
    assert "nccl, but the job holds no GPU on node-0, node-1" in notices(nccl, 2)
    assert "nccl" not in notices(nccl, gpus=("0",))


def test_gloo_with_gpus_is_a_warning() -> None:
    gloo = PyTorch(communication_backend="gloo")
    assert "communication_backend is gloo, but the job holds GPUs" in notices(gloo, gpus=("0",))
    assert "communication_backend" not in notices(gloo)


def test_more_processes_than_gpus_is_a_warning() -> None:
    four = PyTorch(process_count_per_instance=4)
    assert "4 processes share 2 GPUs on node-0" in notices(four, gpus=("0", "1"))
    assert "share" not in notices(PyTorch(process_count_per_instance=2), gpus=("0", "1")).replace("its share", "")


def test_more_cpu_ranks_than_cores_of_the_machine_is_a_notice() -> None:
    two = PyTorch(process_count_per_instance=2)
    assert "4 ranks take turns on 2 CPU cores of node-0, node-1" in notices(two, 2, cpus=2)
    assert "take turns" not in notices(two, 2, cpus=4)
    assert "take turns" not in notices(two, 2, cpus=2, gpus=("0", "1"))


def test_simulated_nodes_say_who_has_which_gpu() -> None:
    told = notices(PyTorch(), 2, gpus=("0", "1"))
    assert "simulated nodes share out the GPUs of one machine (node-0: 0; node-1: 1)" in told


def test_what_is_so_on_nearly_every_run_is_no_notice() -> None:
    assert "OMP_NUM_THREADS" not in notices(PyTorch(process_count_per_instance=2))
    assert "IFNAME" not in notices(PyTorch(), 2)


def test_gpus_chosen_beyond_those_held_are_a_warning() -> None:
    assert "CUDA_VISIBLE_DEVICES is '0,5'" in notices(None, gpus=("0", "1"), CUDA_VISIBLE_DEVICES="0,5")
    assert "CUDA_VISIBLE_DEVICES" not in notices(None, gpus=("0", "1"), CUDA_VISIBLE_DEVICES="1")


def test_tensorflow_tasks_that_share_gpus_are_told() -> None:
    servers = TensorFlow(parameter_server_count=1)
    assert "several TensorFlow tasks share the GPUs of node-0" in notices(servers, gpus=("0",))
    assert "several" not in notices(servers, gpus=("0",), TF_FORCE_GPU_ALLOW_GROWTH="false")
