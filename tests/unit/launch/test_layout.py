from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from muster.job.parts import Distribution, Mpi, PyTorch, Resources, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.layout import Demand, demand, layout, num_ranks

COUNTS = st.integers(1, 12)


def job(distribution: Distribution | None, nodes: int = 1) -> JobSpec:
    return JobSpec(command="true", distribution=distribution, resources=Resources(instance_count=nodes))


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    kind = draw(st.sampled_from(["pytorch", "per node", "mpi", "tensorflow", "single"]))
    nodes = draw(COUNTS)
    if kind == "pytorch":
        return job(PyTorch(process_count_per_instance=draw(COUNTS)), nodes)
    if kind == "per node":
        return job(PyTorch(), nodes)
    if kind == "mpi":
        return job(Mpi(process_count_per_instance=draw(COUNTS)), nodes)
    if kind == "single":
        return job(None)
    servers = draw(st.integers(0, nodes))
    return job(
        TensorFlow(parameter_server_count=servers, chief=draw(st.booleans()), evaluator=draw(st.booleans())), nodes
    )


@given(jobs())
def test_every_rank_is_there_once_in_order(spec: JobSpec) -> None:
    assert [task.rank for task in layout(spec)] == list(range(num_ranks(spec)))


@given(jobs())
def test_the_ranks_of_a_node_come_before_those_of_the_next(spec: JobSpec) -> None:
    nodes = [task.node_rank for task in layout(spec)]
    assert nodes == sorted(nodes)
    assert set(nodes) == set(range(spec.resources.instance_count))


@given(jobs())
def test_local_ranks_are_contiguous_from_zero(spec: JobSpec) -> None:
    tasks = layout(spec)
    assert tasks[0].local_rank == 0
    for before, after in pairwise(tasks):
        assert after.local_rank == (before.local_rank + 1 if after.node_rank == before.node_rank else 0)


@given(jobs())
def test_the_tasks_of_a_role_are_numbered_without_gaps(spec: JobSpec) -> None:
    indices: dict[str, list[int]] = {}
    for task in layout(spec):
        indices.setdefault(task.role, []).append(task.index)
    for found in indices.values():
        assert sorted(found) == list(range(len(found)))


@given(jobs())
def test_demand_counts_the_fullest_node(spec: JobSpec) -> None:
    per_node = Counter(task.node_rank for task in layout(spec))
    assert demand(spec) == Demand(len(per_node), max(per_node.values()), None)


def test_parameter_servers_share_the_first_nodes() -> None:
    tasks = layout(job(TensorFlow(parameter_server_count=2), 3))
    assert [(task.node_rank, task.role, task.index) for task in tasks] == [
        (0, "worker", 0),
        (0, "ps", 0),
        (1, "worker", 1),
        (1, "ps", 1),
        (2, "worker", 2),
    ]


def test_the_chief_is_on_the_first_node_and_the_evaluator_on_the_last() -> None:
    tasks = layout(job(TensorFlow(chief=True, evaluator=True), 2))
    assert [(task.node_rank, task.role) for task in tasks] == [
        (0, "chief"),
        (0, "worker"),
        (1, "worker"),
        (1, "evaluator"),
    ]


def test_gpus_are_asked_for_per_node() -> None:
    spec = JobSpec(command="true", distribution=PyTorch(), resources=Resources(instance_count=2, gpus_per_node=4))
    assert demand(spec) == Demand(num_nodes=2, ranks_per_node=1, gpus_per_node=4)
