"""Nodes that the server manages itself, on engines that own them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Row, select

from muster.engines.base import Cluster, NodeEngine, NodeState
from muster.server.context import Context
from muster.server.database import tables
from muster.server.nodes import clusters
from muster.server.nodes.clusters import Held, NodeRecord
from muster.server.nodes.configs import write_config
from muster.wire.clusters import NodeView


@dataclass(frozen=True)
class OwnedNodes:
    """The nodes of one cluster."""

    context: Context
    cluster: Cluster
    engine: NodeEngine

    def start(self, nodes: Sequence[str]) -> None:
        """Have the engine start agents."""
        offers = {offer.name: offer for offer in self.engine.nodes(self.cluster)}
        connection = self.engine.connection(self.cluster)
        configs = []
        for node in nodes:
            offer = offers.get(node)
            address, gpus = (offer.address, offer.gpus) if offer else ("127.0.0.1", None)
            linger_s = connection.linger_s if connection else None
            configs.append(write_config(self.context, self.cluster, node, connection, address, gpus, linger_s))
        self.engine.start(self.cluster, configs)

    def poll(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        return self.engine.poll(self.cluster, {node: self.context.paths.node(node) for node in nodes})

    def views(self, connection: Connection, held: Sequence[Held]) -> list[NodeView]:
        known = clusters.load_states(connection).get(self.cluster.name, {})
        query = select(tables.nodes).where(tables.nodes.c.cluster == self.cluster.name)
        agents = {row.name: row for row in connection.execute(query)}
        return [
            _view(
                self.context, name, agents.get(name), known.get(name), [row.run_id for row in held if row.node == name]
            )
            for name in sorted({*agents, *known}, key=_natural)
        ]


def _view(
    context: Context, name: str, agent: Row[tuple[object, ...]] | None, record: NodeRecord | None, runs: list[str]
) -> NodeView:
    since: float | None = agent.seen_at if agent else None
    state, reason = "running" if runs else "idle" if name in context.hub.contacts else "away", ""
    if record is not None:
        state, reason, since = record.state, record.reason, record.since
        if runs and state == clusters.IDLE:
            state, reason = clusters.RUNNING, ""
        if record.cordoned is not None:
            reason = f"cordoned: {record.cordoned}"
    return NodeView(
        name=name,
        state=state,
        reason=reason,
        since=since,
        cordoned=record.cordoned if record else None,
        strikes=record.strikes if record else 0,
        runs=tuple(runs),
        host=agent.host if agent else None,
        pid=agent.pid if agent else None,
        address=agent.address if agent else None,
        cpus=agent.cpus if agent else None,
        memory_bytes=agent.memory_bytes if agent else None,
        gpus=tuple(agent.gpus) if agent else None,
    )


def _natural(name: str) -> tuple[str, int]:
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, 0)
