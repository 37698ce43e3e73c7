"""Clusters as they are recorded: their rules, their nodes for the scheduler, and the states of their nodes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Select, delete, insert, select, update

from muster import errors
from muster.clusters.options import Limit, Options, parse_options
from muster.control.scheduling.model import Node, Quota, Rules
from muster.engines.base import Cluster, NodeOffer
from muster.engines.base import Connection as Reach
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS

log = logging.getLogger("muster.server")

READY, STOPPED, DELETING = "ready", "stopped", "deleting"
UNREACHABLE = "unreachable"
"""Shown while the cluster's own manager does not answer; never recorded."""
PREPARING, IDLE, RUNNING = "preparing", "idle", "running"
LEAVING, PREEMPTED, UNUSABLE, GONE = "leaving", "preempted", "unusable", "gone"
TAKES_GANGS = (IDLE, RUNNING)

_STATES = tables.node_states
_ALL_STATES = select(_STATES)
_HISTORY = insert(tables.node_history)


def cluster_of(row: Any) -> Cluster:
    return Cluster(row.name, row.engine, row.options)


def options_of(row: Any) -> Options:
    return parse_options(row.options)


def find(connection: Connection | Transaction, name: str) -> Any:
    """A cluster's row, or a refusal that names the known ones."""
    rows = {row.name: row for row in connection.execute(CLUSTERS)}
    if name not in rows:
        raise errors.NotFound(f"there is no cluster {name!r}", f"Known here: {', '.join(sorted(rows))}.")
    return rows[name]


@dataclass(frozen=True)
class NodeRecord:
    """What is recorded of a node that the server manages."""

    cluster: str
    name: str
    state: str
    reason: str
    since: float
    cordoned: str | None
    """Why nothing new starts there; empty: it is not cordoned."""
    strikes: int

    @property
    def takes_gangs(self) -> bool:
        return self.state in TAKES_GANGS and self.cordoned is None


class Held(NamedTuple):
    """A node that an attempt holds."""

    node: str
    host: str | None
    run_id: str


def scales(context: Context, cluster: Cluster) -> bool:
    """Whether nodes come before jobs: the server starts them, sets them up and removes them."""
    engine = context.nodes.engines.owner(cluster.engine)
    return engine is not None and engine.scales(cluster)


def reaches(context: Context, connection: Connection) -> dict[str, Reach]:
    """How each cluster on other machines wants to reach this server, by name."""
    found: dict[str, Reach] = {}
    for row in connection.execute(CLUSTERS):
        engine = context.nodes.engines.owner(row.engine) or context.nodes.engines.queue(row.engine)
        try:
            reach = engine.connection(cluster_of(row)) if engine else None
        except errors.JobError as error:
            # A file that its settings name may be gone; its agents must still be heard.
            log.warning("the settings of the cluster %s are no longer valid: %s", row.name, error)
            reach = Reach()
        if reach is not None:
            found[row.name] = reach
    return found


def load_states(connection: Connection | Transaction) -> dict[str, dict[str, NodeRecord]]:
    """The recorded states of nodes, by cluster and name."""
    found: dict[str, dict[str, NodeRecord]] = {}
    for row in connection.execute(_ALL_STATES):
        found.setdefault(row.cluster, {})[row.name] = NodeRecord(*row)
    return found


def has_living_nodes(connection: Connection) -> bool:
    """Whether some cluster has nodes; those that are set aside do not count."""
    return connection.execute(select(_STATES.c.name).where(_STATES.c.state != UNUSABLE).limit(1)).first() is not None


def offered(context: Context, cluster: Cluster) -> list[Node]:
    """The nodes of a cluster at its largest; raises where its engine cannot be used."""
    offers = context.nodes.engines.get(cluster.engine).nodes(cluster)
    known = context.nodes.offered.get(cluster.name)
    # An engine returns the same list as long as the cluster is the same.
    if known is None or known[0] is not offers:
        price = parse_options(cluster.options).hourly_price
        known = context.nodes.offered[cluster.name] = (offers, [_node(offer, price) for offer in offers])
    return known[1]


def usable(context: Context, cluster: Cluster, states: Mapping[str, NodeRecord]) -> list[Node]:
    """The nodes that can take a gang now."""
    if context.nodes.engines.trouble(cluster.engine):
        return []
    unknown = not scales(context, cluster)
    known = {name: record.takes_gangs for name, record in states.items()}
    return [node for node in offered(context, cluster) if known.get(node.name, unknown)]


def rules_of(context: Context, row: Any, states: Mapping[str, NodeRecord], num_usable: int) -> Rules:
    """How a cluster treats its queue now."""
    options = options_of(row)
    cluster = cluster_of(row)
    coming = 0
    if scales(context, cluster):
        out = sum(item.state == UNUSABLE or item.cordoned is not None for item in states.values())
        coming = max(0, len(offered(context, cluster)) - num_usable - out)
    closed = context.nodes.engines.trouble(cluster.engine)
    queue = context.nodes.engines.queue(cluster.engine)
    if queue is not None and not num_usable:
        # While its nodes are unknown, its gangs wait here.
        closed = queue.trouble(cluster)
    if row.state == STOPPED:
        closed = f"{row.name} is stopped; `muster cluster start {row.name}` starts it"
    quotas = options.quotas
    return Rules(
        preemption=options.preemption,
        max_passed_over=options.max_passed_over,
        coming=coming,
        closed=closed,
        hands_on=queue is not None,
        per_user=_quota(quotas.per_user),
        per_experiment=_quota(quotas.per_experiment),
        users={name: _quota(limit) for name, limit in quotas.users.items()},
        experiments={name: _quota(limit) for name, limit in quotas.experiments.items()},
    )


def set_state(transaction: Transaction, cluster: str, name: str, state: str, reason: str = "") -> None:
    """Put a node into a state, and record when and why."""
    now = clock.now()
    where = (_STATES.c.cluster == cluster, _STATES.c.name == name)
    if state == GONE:
        transaction.execute(delete(_STATES).where(*where))
    elif not transaction.execute(update(_STATES).where(*where).values(state=state, reason=reason, since=now)).rowcount:
        row = {"cluster": cluster, "name": name, "state": state, "reason": reason, "since": now, "strikes": 0}
        transaction.execute(insert(_STATES).values(**row))
    add_history(transaction, cluster, name, state, reason)


def add_history(transaction: Transaction, cluster: str, name: str, state: str, reason: str) -> None:
    row = {"cluster": cluster, "name": name, "at": clock.now(), "state": state, "reason": reason}
    transaction.execute(_HISTORY, row)


def cordon(transaction: Transaction, cluster: str, names: Sequence[str], why: str | None) -> None:
    """Cordon nodes, or take them back, which also clears their strikes."""
    states = load_states(transaction).get(cluster, {})
    unknown = [name for name in names if name not in states]
    if unknown:
        known = ", ".join(sorted(states)) or "none"
        raise errors.NotFound(f"{cluster} has no node {unknown[0]!r} at the moment", f"Its nodes: {known}.")
    for name in names:
        record = replace(states[name], cordoned=why)
        if why is None:
            record = replace(record, strikes=0)
            if record.state == UNUSABLE:
                # A new agent will show whether all is well now.
                record = replace(record, state=LEAVING, reason="taken back; it is started afresh", since=clock.now())
        mine = (_STATES.c.cluster == cluster, _STATES.c.name == name)
        transaction.execute(update(_STATES).where(*mine).values(**vars(record)))
        add_history(transaction, cluster, name, record.state, f"cordoned: {why}" if why is not None else "uncordoned")


def _node(offer: NodeOffer, price: float | None) -> Node:
    pool = "" if offer.own_share else offer.host
    return Node(offer.name, offer.host, offer.address, offer.cpus, offer.gpus, pool, price)


def _quota(limit: Limit) -> Quota:
    return Quota(limit.nodes, limit.gpus)


def forget(context: Context, transaction: Transaction, name: str) -> None:
    """Remove a cluster; from then on the tokens of its nodes are invalid."""
    used = (tables.placements.c.node, tables.nodes.c.name, tables.node_history.c.name)
    known = {node for column in used for node in transaction.execute(_nodes_of(column, name)).scalars()}
    # Nodes whose agents never said hello have a token too.
    known |= {node for node in context.nodes.agent_tokens if node.startswith(f"{name}-")}
    context.tokens.end_agents(transaction, known)
    transaction.execute(delete(tables.clusters).where(tables.clusters.c.name == name))
    transaction.after_commit.append(partial(_forget_tokens, context, known))


def _forget_tokens(context: Context, nodes: set[str]) -> None:
    for node in nodes:
        context.nodes.agent_tokens.pop(node, None)


def _nodes_of(column: Column[str], cluster: str) -> Select[str]:
    return select(column).where(column.table.c.cluster == cluster).distinct()
