"""A gang on its nodes: the tasks, their slots, and how those on one machine share it."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from muster.job.expressions import resolve_environment
from muster.job.parts import Mpi, PyTorch, TensorFlow
from muster.job.spec import JobSpec
from muster.launch.layout import SERVER, Task, layout
from muster.wire.node.plan import Slot

# A gang on loopback addresses runs on the machine that plans it, so this machine's platform counts.
LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True)
class Gang:
    """All that the environment of a rank depends on."""

    spec: JobSpec
    tasks: tuple[Task, ...]
    slots: tuple[Slot, ...]
    user_env: Mapping[str, str]

    @classmethod
    def of(cls, spec: JobSpec, slots: Iterable[Slot]) -> Gang:
        return cls(spec, layout(spec), tuple(slots), resolve_environment(spec))

    @cached_property
    def tasks_of_nodes(self) -> tuple[tuple[Task, ...], ...]:
        nodes: list[list[Task]] = [[] for _ in self.slots]
        for task in self.tasks:
            nodes[task.node_rank].append(task)
        return tuple(map(tuple, nodes))

    @cached_property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """Node ranks, grouped by the machine that they share."""
        groups: dict[str, list[int]] = {}
        for node_rank, slot in enumerate(self.slots):
            groups.setdefault(_machine(slot), []).append(node_rank)
        return tuple(map(tuple, groups.values()))

    @property
    def on_one_machine(self) -> bool:
        """Whether all ranks are on one machine."""
        return len(self.machines) == 1

    def tasks_on_machine(self, node_rank: int) -> int:
        """Tasks that share the machine's cores with those of a node, its own included."""
        together = next(group for group in self.machines if node_rank in group)
        return sum(len(self.tasks_of_nodes[other]) for other in together)


def shared_environment(gang: Gang, node_rank: int) -> dict[str, str]:
    """Variables that keep the ranks of a node out of each other's way."""
    env: dict[str, str] = {}
    devices = visible_gpus(gang, node_rank)
    if devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = devices
    if devices and gang.spec.resources.gpu_share < 1:
        env.update(_of_a_shared_gpu(gang.spec.resources.gpu_share))
    if gpus_are_shared_by_tasks(gang, node_rank):
        env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    threads = threads_per_rank(gang, node_rank)
    if threads is not None:
        env["OMP_NUM_THREADS"] = str(threads)
    if uses_loopback(gang):
        env.update(dict.fromkeys(INTERFACE_VARIABLES, LOOPBACK_INTERFACE))
    return {**env, **gang.slots[node_rank].network}


def _of_a_shared_gpu(share: float) -> dict[str, str]:
    """The share of its GPU, and settings that keep TensorFlow and JAX from taking all of the memory at once."""
    return {
        "MUSTER_GPU_SHARE": f"{share:g}",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{share:g}",
    }


def own_gpus(gang: Gang, task: Task) -> dict[str, str]:
    """The GPUs that a rank sees where the job asks for isolation; otherwise it sees all of its node's."""
    gpus = gang.slots[task.node_rank].gpus
    if not gang.spec.resources.gpu_isolation or not gpus:
        return {}
    # Parameter servers compute nothing.
    sharing = [other for other in gang.tasks_of_nodes[task.node_rank] if other.role != SERVER]
    if task not in sharing:
        return {"CUDA_VISIBLE_DEVICES": ""}
    each, position = len(gpus) // len(sharing), sharing.index(task)
    own = gpus[position * each : (position + 1) * each] if each else (gpus[position % len(gpus)],)
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}


def visible_gpus(gang: Gang, node_rank: int) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES; None: no GPU needs to be hidden."""
    slot = gang.slots[node_rank]
    if slot.gpus:
        return ",".join(slot.gpus)
    # Without a GPU of its own a rank must not take one that another node of the gang holds.
    if gang.spec.resources.gpus_per_node == 0 or any(other.gpus for other in gang.slots):
        return ""
    return None


def gpus_are_shared_by_tasks(gang: Gang, node_rank: int) -> bool:
    """Whether several TensorFlow tasks see the same GPUs, where each would take all of their memory."""
    several = len(gang.tasks_of_nodes[node_rank]) > 1
    return several and bool(gang.slots[node_rank].gpus) and isinstance(gang.spec.distribution, TensorFlow)


def threads_per_rank(gang: Gang, node_rank: int) -> int | None:
    """OpenMP threads where several ranks share a machine; the user's own launcher decides for itself."""
    distribution = gang.spec.distribution
    per_node = isinstance(distribution, PyTorch) and distribution.process_count_per_instance is None
    ranks = gang.tasks_on_machine(node_rank)
    if per_node or ranks < 2:
        return None
    return max(1, gang.slots[node_rank].cpus // ranks)


def uses_loopback(gang: Gang) -> bool:
    """Whether Gloo and NCCL should use loopback, which needs neither name resolution nor an open firewall."""
    return gang.on_one_machine and isinstance(gang.spec.distribution, PyTorch | Mpi)


def _machine(slot: Slot) -> str:
    if _is_loopback(slot.address):
        return "loopback"
    return slot.address if slot.shared_host else f"node {slot.name}"


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
