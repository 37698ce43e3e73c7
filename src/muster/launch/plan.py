"""From a job and its nodes to a plan: for every rank the command, environment and log name. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.job.expressions import resolve_command, resolve_environment
from muster.job.parts import Mpi, TensorFlow
from muster.job.spec import JobSpec
from muster.launch import mpi
from muster.launch.conventions import chosen_master_port, convention_environment, mpi_environment, ports_wanted
from muster.launch.expand import protect
from muster.launch.fabric import Member, Wanted, choose
from muster.launch.gang import Gang, own_gpus, shared_environment
from muster.launch.layout import CHIEF, WORKER, Task, process_logs, role_logs
from muster.launch.notices import notices
from muster.launch.services import service_environment, service_notices, service_ranks
from muster.wire.node.devices import Devices
from muster.wire.node.plan import MpiHost, NodePlan, Plan, PortsWanted, RankPlan, Slot


def plan(spec: JobSpec, slots: Sequence[Slot], *, run_id: str, attempt: int, python: str = "python") -> Plan:
    """The plan of one attempt; `slots` are the nodes in rank order, with the ports they hold."""
    gang = Gang.of(spec, slots)
    _require_slots(gang)
    argv, expand = _command(spec, python)
    logs = role_logs(gang.tasks) if isinstance(spec.distribution, TensorFlow) else process_logs(gang.tasks)
    hosts = _mpi_hosts(gang) if isinstance(spec.distribution, Mpi) else ()
    nodes = []
    for node_rank, (slot, tasks) in enumerate(zip(gang.slots, gang.tasks_of_nodes, strict=True)):
        base = _base_environment(gang, node_rank, run_id, attempt)
        ranks = [
            RankPlan(
                rank=task.rank,
                node_rank=node_rank,
                local_rank=task.local_rank,
                argv=argv,
                env={**base, **own_gpus(gang, task), **convention_environment(gang, task), **gang.user_env},
                log=logs[task.rank],
                role=task.role,
                expand=expand,
                essential=_is_essential(task, spec),
                wrapped=isinstance(spec.distribution, Mpi),
            )
            for task in tasks
        ]
        if hosts and node_rank == 0:
            ranks.insert(0, _mpi_launcher(gang, hosts, base))
        nodes.append(NodePlan(node_rank, slot.name, slot.address, slot.gpus, tuple(ranks), hosts))
    if spec.services:
        nodes[0] = _with_services(gang, nodes[0], _base_environment(gang, 0, run_id, attempt))
    return Plan(tuple(nodes), (*notices(gang), *service_notices(gang, run_id)))


def with_network(
    spec: JobSpec, slots: Sequence[Slot], devices: Sequence[Devices | None], wanted: Wanted | None = None
) -> tuple[tuple[Slot, ...], tuple[str, ...]]:
    """The slots with addresses and settings of the chosen network, and why it was chosen.

    Nodes on one machine use loopback, and unknown settings are left to the frameworks.
    """
    known = [found for found in devices if found is not None]
    gang = Gang.of(spec, slots)
    if spec.distribution is None or gang.on_one_machine or len(known) < len(slots):
        return tuple(slots), ()
    members = [Member(slot.name, slot.address, found) for slot, found in zip(slots, known, strict=True)]
    made = choose(members, gang.user_env, wanted, mpi=isinstance(spec.distribution, Mpi))
    changed = (
        replace(slot, address=address, network=settings)
        for slot, address, settings in zip(slots, made.addresses, made.settings, strict=True)
    )
    return tuple(changed), made.notices


def check(spec: JobSpec) -> None:
    """Raise JobError for what the job's models accept and a plan cannot use."""
    chosen_master_port(resolve_environment(spec))


def sample_slots(spec: JobSpec, *, cpus: int = 1, gpus: Sequence[str] = ()) -> tuple[Slot, ...]:
    """Simulated nodes on one machine, for a plan without real nodes; its GPUs are divided among them."""
    nodes = spec.resources.instance_count
    share = len(gpus) // nodes
    most = spec.resources.whole_gpus
    if most is not None:
        share = min(share, most)
    slots: list[Slot] = []
    taken: set[int] = set()
    for node_rank in range(nodes):
        ports = _free_ports(ports_wanted(spec, node_rank), taken)
        held = tuple(gpus[node_rank * share : (node_rank + 1) * share])
        slots.append(Slot(f"node-{node_rank}", "127.0.0.1", cpus, held, ports, shared_host=nodes > 1))
    return tuple(slots)


def placeholder_slots(spec: JobSpec, *, cpus: int = 1, gpus: Sequence[str] = ()) -> tuple[Slot, ...]:
    """Placeholders for machines that are not known yet: for their names, addresses and ports."""
    most = spec.resources.whole_gpus
    held = tuple(gpus if most is None else gpus[:most])
    return tuple(
        Slot(f"NODE_{rank}", f"ADDRESS_OF_NODE_{rank}", cpus, held, _free_ports(ports_wanted(spec, rank), set()))
        for rank in range(spec.resources.instance_count)
    )


def _require_slots(gang: Gang) -> None:
    nodes = gang.spec.resources.instance_count
    if len(gang.slots) != nodes:
        raise ValueError(f"the job needs {nodes} nodes, {len(gang.slots)} were given")
    for node_rank, slot in enumerate(gang.slots):
        wanted = ports_wanted(gang.spec, node_rank)
        if len(slot.ports) < wanted.count:
            raise ValueError(f"{slot.name} must hold {wanted.count} ports, it holds {len(slot.ports)}")


def _command(spec: JobSpec, python: str) -> tuple[tuple[str, ...], bool]:
    """The arguments, and whether variables in them must still be expanded per rank."""
    command = resolve_command(spec)
    if isinstance(command, str):
        return ("bash", "-c", command), False
    program = protect(python) if command[0] in ("python", "python3") else command[0]
    return (program, *command[1:]), True


def _base_environment(gang: Gang, node_rank: int, run_id: str, attempt: int) -> dict[str, str]:
    """The variables that all ranks of a node share."""
    return {
        "MUSTER_RUN_ID": run_id,
        "MUSTER_EXPERIMENT": gang.spec.experiment_name,
        "MUSTER_ATTEMPT": str(attempt),
        "MUSTER_NODE_RANK": str(node_rank),
        "AZUREML_RUN_ID": run_id,
        "AZUREML_NODE_COUNT": str(len(gang.slots)),
        "PYTHONUNBUFFERED": "1",
        **shared_environment(gang, node_rank),
        **service_environment(gang),
    }


def _is_essential(task: Task, spec: JobSpec) -> bool:
    """Whether the attempt waits for a task: workers and chief; where a chief coordinates servers, only the chief."""
    if not isinstance(spec.distribution, TensorFlow):
        return True
    if spec.distribution.chief and spec.distribution.parameter_server_count:
        return task.role == CHIEF
    return task.role in (CHIEF, WORKER)


def _with_services(gang: Gang, node: NodePlan, base: Mapping[str, str]) -> NodePlan:
    """The first node with the services beside rank 0; a launcher's number follows the last rank's."""
    first = len(gang.tasks) + isinstance(gang.spec.distribution, Mpi)
    return replace(node, ranks=(*node.ranks, *service_ranks(gang, base, first)))


def _mpi_hosts(gang: Gang) -> tuple[MpiHost, ...]:
    return tuple(
        MpiHost(slot.name, slot.address, slot.ports[0] if node_rank else 0, len(tasks), slot.shared_host)
        for node_rank, (slot, tasks) in enumerate(zip(gang.slots, gang.tasks_of_nodes, strict=True))
    )


def _mpi_launcher(gang: Gang, hosts: Sequence[MpiHost], base: Mapping[str, str]) -> RankPlan:
    """The one process that starts the others; its number follows the last MPI rank's.

    The command is Open MPI 5's; the first node replaces it by that of its own mpirun.
    """
    command = mpi.command(
        mpi.Kind(mpi.OPEN_MPI, "5"),
        "mpirun",
        [mpi.Host(mpi.named(host.name), host.ranks) for host in hosts],
        settings=gang.user_env,
    )
    return RankPlan(
        rank=len(gang.tasks),
        node_rank=0,
        local_rank=hosts[0].ranks,
        argv=command,
        env={**base, **mpi_environment(gang, 0), **gang.user_env},
        log="user_logs/mpi_log.txt",
        role="launcher",
    )


def _free_ports(wanted: PortsWanted, taken: set[int]) -> tuple[int, ...]:
    free = (port for port in itertools.count(wanted.preferred) if port not in taken)
    ports = tuple(itertools.islice(free, wanted.count))
    taken.update(ports)
    return ports
