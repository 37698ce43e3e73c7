"""A Ray cluster's nodes, as Ray lists them. Pure, standard library only: the broker and the server's engine read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_nodes(rows: Iterable[Mapping[str, Any]], draining: Iterable[str] = ()) -> list[RayNode]:
    """Nodes out of `ray.nodes()`, the living first."""
    listed = list(rows)
    going = set(draining)
    names = node_names([row for row in listed if row["Alive"]])
    found = []
    for row in listed:
        has = row.get("Resources") or {}
        found.append(
            RayNode(
                id=row["NodeID"],
                name=names.get(row["NodeID"]) or str(row["NodeManagerAddress"]),
                address=str(row["NodeManagerAddress"]),
                alive=bool(row["Alive"]),
                cpus=int(has.get("CPU", 0)),
                memory_bytes=int(has.get("memory", 0)),
                gpus=int(has.get("GPU", 0)),
                head=HEAD in has,
                draining=row["NodeID"] in going,
                labels=dict(row.get("Labels") or {}),
            )
        )
    return sorted(found, key=lambda node: (not node.alive, not node.head, node.name))


def node_names(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A name for each node that no other has: the one that it was started with, else its host's, else its address."""
    hosts = Counter(str(row.get("NodeManagerHostname", "")) for row in rows)
    addresses = Counter(str(row["NodeManagerAddress"]) for row in rows)
    found = {}
    for row in rows:
        given, address = str(row.get("NodeName", "")), str(row["NodeManagerAddress"])
        host = str(row.get("NodeManagerHostname", ""))
        if given and given != address:
            found[row["NodeID"]] = given
        else:
            found[row["NodeID"]] = host if host and hosts[host] == 1 else address
        if found[row["NodeID"]] == address and addresses[address] > 1:
            # Several on one machine.
            found[row["NodeID"]] = f"{address}-{row['NodeID'][-6:]}"
    return found


def fits(node: RayNode, labels: Mapping[str, str], bundle: Mapping[str, float]) -> bool:
    """Whether a node is of a cluster's kind and large enough for one bundle."""
    if not node.alive or node.draining or any(node.labels.get(key) != value for key, value in labels.items()):
        return False
    return node.cpus >= bundle.get("CPU", 0) and node.gpus >= bundle.get("GPU", 0)
