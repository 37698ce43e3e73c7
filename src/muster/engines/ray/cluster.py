"""A Ray cluster's nodes, as Ray lists them. Pure, standard library only: the broker and the server's engine read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.wire.codec import Json

HEAD = "node:__internal_head__"


@dataclass(frozen=True)
class RayNode:
    """One machine of a Ray cluster."""

    id: str
    name: str
    address: str
    alive: bool
    cpus: int
    memory_bytes: int
    gpus: int
    head: bool = False
    draining: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources."""


def read_nodes(rows: Iterable[Mapping[str, Json]], draining: Iterable[str] = ()) -> list[RayNode]:
    """Nodes out of `ray.nodes()`, the living first."""
    listed = list(rows)
    going = set(draining)
    names = node_names([row for row in listed if row["Alive"]])
    found = []
    for row in listed:
        has, labels = row.get("Resources"), row.get("Labels")
        identifier, address = str(row["NodeID"]), str(row["NodeManagerAddress"])
        found.append(
            RayNode(
                id=identifier,
                name=names.get(identifier) or address,
                address=address,
                alive=bool(row["Alive"]),
                cpus=_amount(has, "CPU"),
                memory_bytes=_amount(has, "memory"),
                gpus=_amount(has, "GPU"),
                head=isinstance(has, Mapping) and HEAD in has,
                draining=identifier in going,
                labels={key: str(value) for key, value in labels.items()} if isinstance(labels, Mapping) else {},
                resources=_custom(has),
            )
        )
    return sorted(found, key=lambda node: (not node.alive, not node.head, node.name))


def node_names(rows: Sequence[Mapping[str, Json]]) -> dict[str, str]:
    """A unique name for each node: the one that it was started with, its host's, or its address."""
    hosts = Counter(str(row.get("NodeManagerHostname", "")) for row in rows)
    addresses = Counter(str(row["NodeManagerAddress"]) for row in rows)
    found: dict[str, str] = {}
    for row in rows:
        identifier, given, address = str(row["NodeID"]), str(row.get("NodeName", "")), str(row["NodeManagerAddress"])
        host = str(row.get("NodeManagerHostname", ""))
        name = given if given and given != address else host if host and hosts[host] == 1 else address
        # Several may be on one machine.
        several = name == address and addresses[address] > 1
        found[identifier] = f"{address}-{identifier[-6:]}" if several else name
    return found


def fits(node: RayNode, labels: Mapping[str, str], bundle: Mapping[str, float]) -> bool:
    """Whether a node is of a cluster's kind and large enough for one bundle."""
    if not node.alive or node.draining or any(node.labels.get(key) != value for key, value in labels.items()):
        return False
    known = {**node.resources, "CPU": node.cpus, "GPU": node.gpus}
    return all(known.get(name, 0) >= amount for name, amount in bundle.items())


def _custom(resources: Json) -> dict[str, float]:
    """Custom resources: neither Ray's own kinds nor the name of a node or an accelerator."""
    if not isinstance(resources, Mapping):
        return {}
    amounts = {str(name): float(value) for name, value in resources.items() if isinstance(value, int | float)}
    own, marks = ("CPU", "GPU", "memory", "object_store_memory"), ("node:", "accelerator_type:")
    return {name: value for name, value in amounts.items() if name not in own and not name.startswith(marks)}


def _amount(resources: Json, name: str) -> int:
    value = resources.get(name) if isinstance(resources, Mapping) else None
    return int(value) if isinstance(value, int | float) else 0
