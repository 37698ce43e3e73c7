"""The environment that each framework expects of a rank, and the ports that it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from muster.defaults import MASTER_PORT, MPI_PORT, TENSORFLOW_PORT
from muster.errors import JobError
from muster.job.expressions import resolve_environment
from muster.job.parts import Mpi, PyTorch, TensorFlow
from muster.job.spec import JobSpec
from muster.launch import mpi
from muster.launch.gang import LOOPBACK_INTERFACE, Gang, uses_loopback
from muster.launch.layout import CHIEF, EVALUATOR, SERVER, WORKER, Task, layout
from muster.launch.services import num_free_ports
from muster.wire.node.plan import PortsWanted


def ports_wanted(spec: JobSpec, node_rank: int) -> PortsWanted:
    """The ports that a node's agent must hold before the plan can be made; those of services come last."""
    of_ranks = _ports_of_ranks(spec, node_rank)
    if node_rank > 0:
        return of_ranks
    return replace(of_ranks, count=of_ranks.count + num_free_ports(spec))


def _ports_of_ranks(spec: JobSpec, node_rank: int) -> PortsWanted:
    if isinstance(spec.distribution, TensorFlow):
        serving = [task for task in layout(spec) if task.node_rank == node_rank and task.role != EVALUATOR]
        return PortsWanted(len(serving), TENSORFLOW_PORT)
    if isinstance(spec.distribution, PyTorch | Mpi) and node_rank == 0:
        return PortsWanted(1, chosen_master_port(resolve_environment(spec)) or MASTER_PORT)
    if isinstance(spec.distribution, Mpi):
        return PortsWanted(1, MPI_PORT)
    return PortsWanted()


def convention_environment(gang: Gang, task: Task) -> dict[str, str]:
    """The variables of the job's convention for one task; a single process has none."""
    distribution = gang.spec.distribution
    if isinstance(distribution, PyTorch):
        return _pytorch(gang, task, distribution)
    if isinstance(distribution, Mpi):
        return _mpi(gang, task)
    if isinstance(distribution, TensorFlow):
        return {"TF_CONFIG": _tf_config(gang, task)}
    return {}


def mpi_environment(gang: Gang, node_rank: int) -> dict[str, str]:
    """What Muster adds for every process of an MPI job on a node, including the launcher."""
    env = _rendezvous(gang)
    env["AZ_BATCH_MASTER_NODE"] = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    env["AZ_BATCHAI_MPI_MASTER_NODE"] = env["MASTER_ADDR"]
    env["AZ_BATCH_HOST_LIST"] = ",".join(slot.address for slot in gang.slots)
    env["AZ_BATCHAI_TASK_INDEX"] = str(node_rank)
    loopback = LOOPBACK_INTERFACE if uses_loopback(gang) and len(gang.slots) > 1 else None
    crowded = gang.tasks_on_machine(node_rank) > gang.slots[node_rank].cpus
    return env | mpi.tuning(loopback, crowded)


def chosen_master_port(user_env: Mapping[str, str]) -> int | None:
    """The port that the user chose, if any."""
    text = user_env.get("MASTER_PORT")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise JobError(
            f"environment_variables.MASTER_PORT is {text!r}, which is not a port",
            f"Use a number from 1 to 65535, or leave it out: {MASTER_PORT} is taken where it is free.",
        )
    return int(text)


def _pytorch(gang: Gang, task: Task, distribution: PyTorch) -> dict[str, str]:
    env = _rendezvous(gang)
    env |= {"WORLD_SIZE": str(len(gang.tasks)), "RANK": str(task.rank), "NODE_RANK": str(task.node_rank)}
    # Frameworks that start their own processes take LOCAL_RANK as a sign that a launcher did so already.
    if distribution.process_count_per_instance is not None:
        env["LOCAL_RANK"] = str(task.local_rank)
        env["LOCAL_WORLD_SIZE"] = str(distribution.process_count_per_instance)
    if distribution.communication_backend:
        env["MUSTER_COMMUNICATION_BACKEND"] = distribution.communication_backend.lower()
    return env


def _mpi(gang: Gang, task: Task) -> dict[str, str]:
    env = mpi_environment(gang, task.node_rank)
    master = env["AZ_BATCH_MASTER_NODE"]
    return env | {
        # `jax.distributed.initialize()` finds its ranks only by a variable of Open MPI 4.
        "JAX_COORDINATOR_ADDRESS": master,
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{master}",
        "OMPI_COMM_WORLD_RANK": str(task.rank),
        "OMPI_COMM_WORLD_SIZE": str(len(gang.tasks)),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(task.local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(gang.tasks_of_nodes[task.node_rank])),
    }


def _rendezvous(gang: Gang) -> dict[str, str]:
    first = gang.slots[0]
    port = chosen_master_port(gang.user_env) or first.ports[0]
    return {"MASTER_ADDR": first.address, "MASTER_PORT": str(port)}


def _tf_config(gang: Gang, task: Task) -> str:
    cluster: dict[str, list[str]] = {}
    # A role without tasks has no key: TensorFlow crashes on an empty list. The evaluator is not a member.
    for role in (CHIEF, WORKER, SERVER):
        members = [_tf_address(gang, member) for member in gang.tasks if member.role == role]
        if members:
            cluster[role] = members
    return json.dumps({"cluster": cluster, "task": {"type": task.role, "index": task.index}, "environment": "cloud"})


def _tf_address(gang: Gang, task: Task) -> str:
    # The evaluator, which needs no port, is the last task of its node, so the others are numbered like the ports.
    slot = gang.slots[task.node_rank]
    host = f"[{slot.address}]" if ":" in slot.address else slot.address
    return f"{host}:{slot.ports[task.local_rank]}"
