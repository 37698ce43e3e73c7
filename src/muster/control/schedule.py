"""Which queued run starts where: a pure decision over the queue and what is free.

First in, first out by priority; a gang starts whole or not at all. Nodes of one host share its CPUs and
GPUs. CPU ranks may outnumber cores when the host is otherwise idle; GPUs are a hard limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Waiting:
    """A queued run, as the scheduler sees it."""

    run_id: str
    title: str
    cluster: str
    num_nodes: int
    ranks_per_node: int
    gpus_per_node: int | None


@dataclass(frozen=True)
class Node:
    """A node that could take a part of a gang."""

    name: str
    host: str
    address: str
    cpus: int
    gpus: tuple[str, ...]
    """All that the host has."""


@dataclass(frozen=True)
class Held:
    """What a part of a running gang holds of a host."""

    run_id: str
    title: str
    host: str
    ranks: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """One node for one part of a gang."""

    node: Node
    ranks: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    run_id: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Decision:
    starts: tuple[Start, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each run that was looked at waits."""


class _Host:
    """Mutable bookkeeping of one host during one pass."""

    def __init__(self, node: Node, held: Sequence[Held]) -> None:
        self.cpus = node.cpus
        self.gpus = node.gpus
        taken = {gpu for item in held for gpu in item.gpus}
        self.free_gpus = [gpu for gpu in node.gpus if gpu not in taken]
        self.ranks = sum(item.ranks for item in held)
        self.holders = list(dict.fromkeys(item.title for item in held))

    def copy(self) -> _Host:
        twin = object.__new__(_Host)
        twin.cpus, twin.gpus, twin.ranks = self.cpus, self.gpus, self.ranks
        twin.free_gpus, twin.holders = list(self.free_gpus), list(self.holders)
        return twin


def schedule(queue: Sequence[Waiting], nodes: Mapping[str, Sequence[Node]], held: Sequence[Held]) -> Decision:
    """Start from the head of each cluster's queue what fits; stop at the first that does not."""
    hosts: dict[str, _Host] = {}
    for offered in nodes.values():
        for node in offered:
            if node.host not in hosts:
                hosts[node.host] = _Host(node, [item for item in held if item.host == node.host])
    starts: list[Start] = []
    reasons: dict[str, str] = {}
    blocked: dict[str, str] = {}
    for waiting in queue:
        if waiting.cluster in blocked:
            reasons[waiting.run_id] = f"waits behind {blocked[waiting.cluster]} in the queue of {waiting.cluster}"
            continue
        places, reason = _place(waiting, nodes.get(waiting.cluster, ()), hosts)
        if places is None:
            reasons[waiting.run_id] = reason
            blocked[waiting.cluster] = waiting.title
            continue
        starts.append(Start(waiting.run_id, places))
    return Decision(tuple(starts), reasons)


def impossible(waiting: Waiting, nodes: Sequence[Node]) -> str | None:
    """Why a run could never start on a cluster, however long it waits."""
    if waiting.num_nodes > len(nodes):
        return f"needs {waiting.num_nodes} nodes; {waiting.cluster} has at most {len(nodes)}"
    wanted = waiting.gpus_per_node or 0
    best = max((len(node.gpus) for node in nodes), default=0)
    if wanted > best:
        return f"needs {wanted} GPUs on a node; the largest node of {waiting.cluster} has {best}"
    hosts = {node.host: node for node in nodes}
    if wanted and sum(len(node.gpus) // wanted for node in hosts.values()) < waiting.num_nodes:
        total = sum(len(node.gpus) for node in hosts.values())
        return (
            f"needs {waiting.num_nodes} × {wanted} GPUs; {waiting.cluster} has {total} in all, "
            "shared by its simulated nodes"
        )
    return None


def _place(waiting: Waiting, nodes: Sequence[Node], hosts: dict[str, _Host]) -> tuple[tuple[Place, ...] | None, str]:
    if len(nodes) < waiting.num_nodes:
        return None, f"needs {waiting.num_nodes} nodes; {waiting.cluster} has {len(nodes)}"
    trial: dict[str, _Host] = {}
    chosen: list[Node] = []
    per_host: dict[str, int] = {}
    for node in nodes[: waiting.num_nodes]:
        per_host[node.host] = per_host.get(node.host, 0) + 1
        chosen.append(node)
    places: list[Place] = []
    for node in chosen:
        host = trial.setdefault(node.host, hosts[node.host].copy())
        share = _gpus(waiting, host, per_host[node.host])
        if share > len(host.free_gpus):
            return None, (
                f"needs {share} GPUs on {node.name}; {len(host.free_gpus)} of {len(host.gpus)} are free{_held_by(host)}"
            )
        places.append(Place(node, waiting.ranks_per_node, tuple(host.free_gpus[:share])))
        host.free_gpus = host.free_gpus[share:]
    for name, count in per_host.items():
        host = hosts[name]
        ranks = count * waiting.ranks_per_node
        if host.ranks and host.ranks + ranks > host.cpus:
            free = max(0, host.cpus - host.ranks)
            return None, (f"needs {ranks} CPU slots for its ranks; {free} of {host.cpus} are free{_held_by(host)}")
    for name, count in per_host.items():
        trial[name].ranks += count * waiting.ranks_per_node
        trial[name].holders.append(waiting.title)
        hosts[name] = trial[name]
    return tuple(places), ""


def _gpus(waiting: Waiting, host: _Host, nodes_on_host: int) -> int:
    """GPUs for one node; where none were asked for, its share of the whole machine."""
    if waiting.gpus_per_node is not None:
        return waiting.gpus_per_node
    return len(host.gpus) // nodes_on_host


def _held_by(host: _Host) -> str:
    if not host.holders:
        return ""
    names = ", ".join(host.holders[:3])
    more = f" and {len(host.holders) - 3} more" if len(host.holders) > 3 else ""
    return f", the rest is held by {names}{more}"
