from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import JobError
from muster.job.parts import Distribution, Input, Mpi, PyTorch, Resources, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.conventions import ports_wanted
from muster.launch.expand import expand_all
from muster.launch.gang import LOOPBACK_INTERFACE
from muster.launch.layout import num_ranks
from muster.launch.plan import check, plan, sample_slots
from muster.wire.node.plan import MpiHost, Plan, PortsWanted, Slot

COUNTS = st.integers(1, 6)


def job(
    distribution: Distribution | None = None,
    nodes: int = 1,
    command: str | tuple[str, ...] = ("python", "train.py"),
    gpus: int | None = None,
    **env: str,
) -> JobSpec:
    resources = Resources(instance_count=nodes, gpus_per_node=gpus)
    return JobSpec(command=command, distribution=distribution, resources=resources, environment_variables=env)


def planned(spec: JobSpec, slots: tuple[Slot, ...] | None = None, python: str = "/opt/py/bin/python") -> Plan:
    return plan(spec, slots or sample_slots(spec, cpus=4), run_id="r1", attempt=2, python=python)


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    nodes = draw(COUNTS)
    servers = draw(st.integers(0, nodes))
    choices: list[Distribution] = [
        PyTorch(process_count_per_instance=draw(COUNTS)),
        PyTorch(),
        Mpi(process_count_per_instance=draw(COUNTS)),
        TensorFlow(parameter_server_count=servers, chief=draw(st.booleans()), evaluator=draw(st.booleans())),
    ]
    distribution = draw(st.sampled_from(choices))
    return job(distribution, nodes)


@given(jobs())
def test_log_names_are_unique(spec: JobSpec) -> None:
    logs = [rank.log for rank in planned(spec).ranks]
    assert len(set(logs)) == len(logs)


@given(jobs())
def test_rank_numbers_are_unique_and_the_script_has_the_first_ones(spec: JobSpec) -> None:
    ranks = [rank.rank for rank in planned(spec).ranks if rank.role != "launcher"]
    everyone = [rank.rank for rank in planned(spec).ranks]
    assert ranks == list(range(num_ranks(spec)))
    assert sorted(everyone) == list(range(len(everyone)))


@given(jobs())
def test_the_ports_used_are_those_that_the_nodes_hold(spec: JobSpec) -> None:
    slots = tuple(
        Slot(
            f"n{rank}",
            f"10.0.0.{rank}",
            ports=tuple(20_000 + 100 * rank + i for i in range(ports_wanted(spec, rank).count)),
        )
        for rank in range(spec.resources.instance_count)
    )
    for rank in planned(spec, slots).ranks:
        if "MASTER_PORT" in rank.env:
            assert (rank.env["MASTER_ADDR"], rank.env["MASTER_PORT"]) == ("10.0.0.0", "20000")
        if "TF_CONFIG" in rank.env:
            cluster = json.loads(rank.env["TF_CONFIG"])["cluster"]
            used = [address for members in cluster.values() for address in members]
            held = [f"{slot.address}:{port}" for slot in slots for port in slot.ports]
            assert sorted(used) == sorted(held)


@given(jobs())
def test_every_rank_knows_its_run_attempt_and_node(spec: JobSpec) -> None:
    for rank in planned(spec).ranks:
        assert rank.env["MUSTER_RUN_ID"] == rank.env["AZUREML_RUN_ID"] == "r1"
        assert rank.env["MUSTER_ATTEMPT"] == "2"
        assert rank.env["MUSTER_NODE_RANK"] == str(rank.node_rank)
        assert rank.env["AZUREML_NODE_COUNT"] == str(spec.resources.instance_count)
        assert rank.env["PYTHONUNBUFFERED"] == "1"


@given(COUNTS, COUNTS)
def test_a_pytorch_rank_finds_itself_in_the_world(nodes: int, processes: int) -> None:
    for rank in planned(job(PyTorch(process_count_per_instance=processes), nodes)).ranks:
        assert int(rank.env["RANK"]) == int(rank.env["NODE_RANK"]) * processes + int(rank.env["LOCAL_RANK"])
        assert int(rank.env["WORLD_SIZE"]) == nodes * int(rank.env["LOCAL_WORLD_SIZE"])


def test_a_process_per_node_has_no_local_rank() -> None:
    first, second = planned(job(PyTorch(), 2)).ranks
    assert "LOCAL_RANK" not in first.env
    assert "LOCAL_WORLD_SIZE" not in first.env
    assert (second.env["RANK"], second.env["NODE_RANK"], second.env["WORLD_SIZE"]) == ("1", "1", "2")


def test_a_single_process_has_no_rank_variables() -> None:
    (rank,) = planned(job()).ranks
    assert set(rank.env) == {
        "MUSTER_RUN_ID",
        "MUSTER_EXPERIMENT",
        "MUSTER_ATTEMPT",
        "MUSTER_NODE_RANK",
        "AZUREML_RUN_ID",
        "AZUREML_NODE_COUNT",
        "PYTHONUNBUFFERED",
    }


def test_a_text_command_runs_under_bash() -> None:
    (rank,) = planned(job(command="python train.py && echo $HOME")).ranks
    assert rank.argv == ("bash", "-c", "python train.py && echo $HOME")
    assert not rank.expand


@pytest.mark.parametrize("program", ["python", "python3"])
def test_python_at_the_head_of_a_list_is_the_jobs_interpreter(program: str) -> None:
    (rank,) = planned(job(command=(program, "python", "$HOME"))).ranks
    assert rank.argv == ("/opt/py/bin/python", "python", "$HOME")
    assert rank.expand


def test_another_program_at_the_head_of_a_list_stays() -> None:
    (rank,) = planned(job(command=("torchrun", "train.py"))).ranks
    assert rank.argv == ("torchrun", "train.py")


def test_an_interpreter_with_a_dollar_in_its_path_survives_expansion() -> None:
    (rank,) = planned(job(), python="/opt/$x/python").ranks
    assert rank.argv[0] == "/opt/$$x/python"


def test_the_users_variables_win() -> None:
    spec = job(PyTorch(process_count_per_instance=2), OMP_NUM_THREADS="7", GLOO_SOCKET_IFNAME="eth0", COLOUR="red")
    for rank in planned(spec).ranks:
        assert rank.env["OMP_NUM_THREADS"] == "7"
        assert rank.env["GLOO_SOCKET_IFNAME"] == "eth0"
        assert rank.env["NCCL_SOCKET_IFNAME"] == "lo"
        assert rank.env["COLOUR"] == "red"


def test_the_users_port_is_asked_for_and_used() -> None:
    spec = job(PyTorch(), 2, MASTER_PORT="29500")
    assert ports_wanted(spec, 0) == PortsWanted(1, 29500)
    slots = (Slot("a", "10.0.0.1", ports=(29501,)), Slot("b", "10.0.0.2"))
    assert planned(spec, slots).ranks[1].env["MASTER_PORT"] == "29500"


def test_inputs_reach_arguments_and_variables_as_text() -> None:
    spec = JobSpec(
        command=(
            "python",
            "train.py",
            "--lr",
            "${{inputs.lr}}",
            "--data",
            "${{inputs.data}}/train",
            "--cost",
            "${{inputs.cost}}",
        ),
        inputs={"lr": 0.1, "data": Input(path="./data"), "cost": "5$", "port": 7000},
        distribution=PyTorch(),
        environment_variables={"MASTER_PORT": "${{inputs.port}}"},
    )
    (rank,) = planned(spec).ranks
    final = expand_all(rank.argv, {**rank.env, "MUSTER_INPUT_data": "/mnt/a b"})
    assert final[1:] == ("train.py", "--lr", "0.1", "--data", "/mnt/a b/train", "--cost", "5$")
    assert rank.env["MASTER_PORT"] == "7000"
    assert ports_wanted(spec, 0) == PortsWanted(1, 7000)


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "", "٦١"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(JobError, match="MASTER_PORT"):
        check(job(PyTorch(), MASTER_PORT=port))


def test_ports_are_wanted_where_they_are_used() -> None:
    assert ports_wanted(job(), 0) == PortsWanted()
    assert ports_wanted(job(PyTorch(), 2), 0) == PortsWanted(1, 6105)
    assert ports_wanted(job(PyTorch(), 2), 1) == PortsWanted()
    assert ports_wanted(job(Mpi(), 2), 0) == PortsWanted(1, 6105)
    assert ports_wanted(job(Mpi(), 2), 1) == PortsWanted(1, 6605)
    servers = job(TensorFlow(parameter_server_count=1, chief=True, evaluator=True), 2)
    assert ports_wanted(servers, 0) == PortsWanted(3, 2222)
    assert ports_wanted(servers, 1) == PortsWanted(1, 2222)


def test_threads_are_shared_out_over_the_ranks_of_a_machine() -> None:
    def threads(spec: JobSpec) -> set[str | None]:
        return {rank.env.get("OMP_NUM_THREADS") for rank in planned(spec, sample_slots(spec, cpus=8)).ranks}

    assert threads(job(PyTorch(process_count_per_instance=4))) == {"2"}
    assert threads(job(PyTorch(process_count_per_instance=2), 2)) == {"2"}
    assert threads(job(PyTorch(process_count_per_instance=1), 2)) == {"4"}
    assert threads(job(PyTorch(process_count_per_instance=9))) == {"1"}
    assert threads(job(PyTorch(process_count_per_instance=1))) == {None}
    assert threads(job(PyTorch(), 2)) == {None}


def test_threads_of_different_machines_do_not_mix() -> None:
    slots = (Slot("a", "10.0.0.1", cpus=8, ports=(6105,)), Slot("b", "10.0.0.2", cpus=4))
    ranks = planned(job(PyTorch(process_count_per_instance=2), 2), slots).ranks
    assert [rank.env["OMP_NUM_THREADS"] for rank in ranks] == ["4", "4", "2", "2"]


def test_loopback_is_used_only_where_the_whole_gang_is_on_one_machine() -> None:
    spec = job(PyTorch(), 2)
    apart = (Slot("a", "10.0.0.1", ports=(6105,)), Slot("b", "10.0.0.2"))
    together = tuple(Slot(name, "10.0.0.1", ports=(6105,), shared_host=True) for name in "ab")
    assert "GLOO_SOCKET_IFNAME" not in planned(spec, apart).ranks[0].env
    assert planned(spec, together).ranks[0].env["GLOO_SOCKET_IFNAME"] == "lo"
    assert planned(spec).ranks[1].env["NCCL_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in planned(job()).ranks[0].env


def test_every_rank_of_a_node_sees_all_of_its_gpus() -> None:
    spec = job(PyTorch(process_count_per_instance=2), 2)
    ranks = planned(spec, sample_slots(spec, gpus=("0", "1", "2", "3"))).ranks
    assert [rank.env["CUDA_VISIBLE_DEVICES"] for rank in ranks] == ["0,1", "0,1", "2,3", "2,3"]


def test_gpus_are_hidden_where_none_are_held_but_some_exist() -> None:
    spec = job(PyTorch(), 2)
    with_gpu, without = sample_slots(spec)
    ranks = planned(spec, (replace(with_gpu, gpus=("0",)), without)).ranks
    assert [rank.env["CUDA_VISIBLE_DEVICES"] for rank in ranks] == ["0", ""]
    assert planned(job(gpus=0)).ranks[0].env["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in planned(job()).ranks[0].env


def test_the_backend_is_told_to_the_script() -> None:
    (rank,) = planned(job(PyTorch(communication_backend="Gloo"))).ranks
    assert rank.env["MUSTER_COMMUNICATION_BACKEND"] == "gloo"


def test_without_parameter_servers_the_key_is_absent() -> None:
    config = json.loads(planned(job(TensorFlow(), 2)).ranks[1].env["TF_CONFIG"])
    assert config == {
        "cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }


def test_an_ipv6_address_is_bracketed_in_tf_config() -> None:
    (rank,) = planned(job(TensorFlow()), (Slot("a", "fd00::1", ports=(2222,)),)).ranks
    assert json.loads(rank.env["TF_CONFIG"])["cluster"] == {"worker": ["[fd00::1]:2222"]}


@pytest.mark.parametrize(
    ("distribution", "essential"),
    [
        (TensorFlow(parameter_server_count=1), {"worker"}),
        (TensorFlow(chief=True, evaluator=True), {"chief", "worker"}),
        (TensorFlow(parameter_server_count=1, chief=True, evaluator=True), {"chief"}),
        (PyTorch(process_count_per_instance=2), {"worker"}),
    ],
)
def test_which_roles_end_the_attempt(distribution: Distribution, essential: set[str]) -> None:
    assert {rank.role for rank in planned(job(distribution, 2)).ranks if rank.essential} == essential


def test_tensorflow_tasks_on_the_same_gpus_leave_each_other_memory() -> None:
    spec = job(TensorFlow(parameter_server_count=1), 2)
    slots = sample_slots(spec, gpus=("0", "1"))
    grown = [rank.env.get("TF_FORCE_GPU_ALLOW_GROWTH") for rank in planned(spec, slots).ranks]
    assert grown == ["true", "true", None]


def test_an_mpi_job_has_one_launcher_on_the_first_node() -> None:
    made = planned(job(Mpi(process_count_per_instance=2), 2, ("python", "t.py", "$OMPI_COMM_WORLD_RANK")))
    launcher, *wrapped = made.ranks
    assert (launcher.role, launcher.node_rank, launcher.log) == ("launcher", 0, "user_logs/mpi_log.txt")
    assert launcher.argv[0] == "mpirun"
    assert launcher.argv[-3:] == ("-n", "4", "muster-rank")
    assert not launcher.expand
    assert not launcher.wrapped
    assert "OMPI_COMM_WORLD_RANK" not in launcher.env
    assert [rank.env["OMPI_COMM_WORLD_RANK"] for rank in wrapped] == ["0", "1", "2", "3"]
    assert all(rank.wrapped and rank.expand for rank in wrapped)


def test_mpi_ranks_have_the_names_of_azure_batch() -> None:
    slots = (Slot("a", "10.0.0.1", ports=(6105,)), Slot("b", "10.0.0.2", ports=(6605,)))
    env = planned(job(Mpi(), 2), slots).ranks[-1].env
    assert env["AZ_BATCH_MASTER_NODE"] == "10.0.0.1:6105"
    assert env["AZ_BATCHAI_MPI_MASTER_NODE"] == "10.0.0.1"
    assert env["AZ_BATCH_HOST_LIST"] == "10.0.0.1,10.0.0.2"
    assert env["AZ_BATCHAI_TASK_INDEX"] == "1"


def test_mpi_ranks_tell_jax_where_its_coordinator_is() -> None:
    made = planned(job(Mpi(process_count_per_instance=2), 2))
    launcher, *ranks = made.ranks
    for rank in ranks:
        assert rank.env["JAX_COORDINATOR_ADDRESS"] == rank.env["AZ_BATCH_MASTER_NODE"]
        assert rank.env["OMPI_MCA_orte_hnp_uri"].endswith(rank.env["AZ_BATCH_MASTER_NODE"])
    # mpirun would take it for its own.
    assert "OMPI_MCA_orte_hnp_uri" not in launcher.env


def test_every_node_of_an_mpi_job_knows_the_others() -> None:
    slots = (Slot("a", "10.0.0.1", ports=(6105,)), Slot("b", "10.0.0.2", ports=(6605,)))
    made = planned(job(Mpi(process_count_per_instance=2), 2), slots)
    hosts = (MpiHost("a", "10.0.0.1", 0, 2, False), MpiHost("b", "10.0.0.2", 6605, 2, False))
    assert [node.mpi for node in made.nodes] == [hosts, hosts]


def test_mpi_ranks_that_share_one_machine_stay_on_loopback_and_do_not_spin() -> None:
    spec = job(Mpi(process_count_per_instance=2), 2)
    env = planned(spec, sample_slots(spec, cpus=2)).ranks[-1].env
    assert env["OMPI_MCA_btl_tcp_if_include"] == LOOPBACK_INTERFACE
    assert env["OMPI_MCA_mpi_yield_when_idle"] == "1"
    roomy = planned(spec, sample_slots(spec, cpus=8)).ranks[-1].env
    assert "OMPI_MCA_mpi_yield_when_idle" not in roomy


def test_a_plan_needs_its_nodes_and_their_ports() -> None:
    with pytest.raises(ValueError, match="needs 2 nodes, 1 were given"):
        planned(job(PyTorch(), 2), (Slot("a", ports=(6105,)),))
    with pytest.raises(ValueError, match="a must hold 1 ports, it holds 0"):
        planned(job(PyTorch()), (Slot("a"),))


def test_sample_nodes_share_out_gpus_and_never_a_port() -> None:
    spec = job(TensorFlow(parameter_server_count=1), 2, gpus=1)
    first, second = sample_slots(spec, cpus=2, gpus=("0", "1", "2", "3"))
    assert (first.ports, second.ports) == ((2222, 2223), (2224,))
    assert (first.gpus, second.gpus) == (("0",), ("1",))
    assert first.shared_host
