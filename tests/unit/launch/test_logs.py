from __future__ import annotations

from muster.job.parts import PyTorch, Resources, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.layout import layout, process_logs, role_logs


def torch_logs(processes: int, nodes: int = 1) -> list[str]:
    distribution = PyTorch(process_count_per_instance=processes)
    return process_logs(
        layout(JobSpec(command="true", distribution=distribution, resources=Resources(instance_count=nodes)))
    )


def tensorflow_logs(servers: int, nodes: int) -> list[str]:
    distribution = TensorFlow(parameter_server_count=servers)
    return role_logs(
        layout(JobSpec(command="true", distribution=distribution, resources=Resources(instance_count=nodes)))
    )


def test_one_process_has_the_plain_log() -> None:
    assert torch_logs(1) == ["user_logs/std_log.txt"]


def test_ranks_up_to_ten_need_no_padding() -> None:
    assert torch_logs(5, 2)[9] == "user_logs/std_log_process_9.txt"


def test_ranks_are_padded_to_the_width_of_the_largest() -> None:
    assert torch_logs(11)[0] == "user_logs/std_log_process_00.txt"
    assert torch_logs(101)[7] == "user_logs/std_log_process_007.txt"


def test_tensorflow_logs_name_the_node_and_the_role() -> None:
    assert tensorflow_logs(1, 2) == [
        "user_logs/std_log_node_0_worker.txt",
        "user_logs/std_log_node_0_ps.txt",
        "user_logs/std_log_node_1_worker.txt",
    ]


def test_node_numbers_are_padded_too() -> None:
    assert tensorflow_logs(0, 11)[3] == "user_logs/std_log_node_03_worker.txt"
