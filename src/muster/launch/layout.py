"""Which task runs on which node, and the name of its log; without addresses or environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.job.parts import Mpi, PyTorch, TensorFlow
from muster.job.spec import JobSpec

WORKER, CHIEF, SERVER, EVALUATOR = "worker", "chief", "ps", "evaluator"


@dataclass(frozen=True)
class Task:
    """One process of the gang that runs the user's command."""

    rank: int
    node_rank: int
    local_rank: int
    role: str = WORKER
    index: int = 0
    """Position among the tasks of its role."""


@dataclass(frozen=True)
class Demand:
    """What the scheduler must find before the gang can start."""

    num_nodes: int
    ranks_per_node: int
    """The ranks on the fullest node."""
    gpus_per_node: int | None
    """None: all that a node (or its share of the machine) has."""
    gpu_share: float = 1.0
    """Below 1: this part of one GPU."""


def layout(spec: JobSpec) -> tuple[Task, ...]:
    """Every task in rank order, node by node."""
    nodes = spec.resources.instance_count
    if isinstance(spec.distribution, TensorFlow):
        return _roles(nodes, spec.distribution)
    if isinstance(spec.distribution, PyTorch | Mpi):
        return _even(nodes, spec.distribution.process_count_per_instance or 1)
    return _even(1, 1)


def num_ranks(spec: JobSpec) -> int:
    """How many processes run the user's command; Muster's own launcher does not count."""
    return len(layout(spec))


def demand(spec: JobSpec) -> Demand:
    """What the gang needs of a cluster."""
    per_node = [0] * spec.resources.instance_count
    for task in layout(spec):
        per_node[task.node_rank] += 1
    resources = spec.resources
    return Demand(len(per_node), max(per_node), resources.whole_gpus, resources.gpu_share)


def process_logs(tasks: Sequence[Task]) -> list[str]:
    """Below the run's files: `std_log.txt` for one process, otherwise a file per rank, padded so that they sort."""
    if len(tasks) == 1:
        return ["user_logs/std_log.txt"]
    width = len(str(len(tasks) - 1))
    return [f"user_logs/std_log_process_{task.rank:0{width}}.txt" for task in tasks]


def role_logs(tasks: Sequence[Task]) -> list[str]:
    """A file per node and role."""
    width = len(str(max(task.node_rank for task in tasks)))
    return [f"user_logs/std_log_node_{task.node_rank:0{width}}_{task.role}.txt" for task in tasks]


def _even(nodes: int, per_node: int) -> tuple[Task, ...]:
    return tuple(
        Task(rank, node_rank=rank // per_node, local_rank=rank % per_node, index=rank)
        for rank in range(nodes * per_node)
    )


def _roles(nodes: int, distribution: TensorFlow) -> tuple[Task, ...]:
    tasks: list[Task] = []
    for node_rank in range(nodes):
        for local_rank, (role, index) in enumerate(_roles_on(node_rank, nodes, distribution)):
            tasks.append(Task(len(tasks), node_rank, local_rank, role, index))
    return tuple(tasks)


def _roles_on(node_rank: int, nodes: int, distribution: TensorFlow) -> list[tuple[str, int]]:
    """The tasks of one node: servers are on the first nodes, at most one on each, the evaluator on the last one."""
    roles = [(CHIEF, 0)] if distribution.chief and node_rank == 0 else []
    roles.append((WORKER, node_rank))
    if node_rank < distribution.parameter_server_count:
        roles.append((SERVER, node_rank))
    if distribution.evaluator and node_rank == nodes - 1:
        roles.append((EVALUATOR, 0))
    return roles
