"""How much of a cluster was in use over time, from the records of attempts, nodes and runs."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, and_, func, or_, select

from muster.control.utilisation import Span, averages, present, union
from muster.server.database import tables
from muster.server.nodes import clusters
from muster.wire.clusters import ClusterUse, UsePoint

_ABSENT = frozenset((clusters.GONE, clusters.UNUSABLE, clusters.PREEMPTED))


def use_of(connection: Connection, cluster: str, hours: float, points: int, now: float) -> ClusterUse:
    """Nodes, busy nodes, GPUs in use and runs that wait, as averages over equal intervals of the last hours."""
    clusters.find(connection, cluster)
    begin, step_s = now - 3600 * hours, 3600 * hours / points
    held, gpus = _held(connection, cluster, begin, now)
    there = [span for states in _states(connection, cluster).values() for span in present(states, _ABSENT, now)]
    busy = [span for spans in held.values() for span in union(spans)]
    rows = zip(
        averages(there, begin, step_s, points),
        averages(busy, begin, step_s, points),
        averages(gpus, begin, step_s, points),
        averages(_waiting(connection, cluster, begin, now), begin, step_s, points),
        strict=True,
    )
    return ClusterUse(
        cluster=cluster,
        begin=begin,
        step_s=step_s,
        points=tuple(
            UsePoint(round(max(nodes, busy), 4) if there else None, round(busy, 4), round(gpus, 4), round(waiting, 4))
            for nodes, busy, gpus, waiting in rows
        ),
    )


def _held(connection: Connection, cluster: str, begin: float, now: float) -> tuple[dict[str, list[Span]], list[Span]]:
    """When attempts held each node, and how many GPUs."""
    attempts, placements, runs = tables.attempts, tables.placements, tables.runs
    mine = and_(attempts.c.run_id == placements.c.run_id, attempts.c.number == placements.c.number)
    columns = (*placements.c["node", "host", "gpus"], *attempts.c["created_at", "granted_at", "ended_at"])
    recent = or_(attempts.c.ended_at.is_(None), attempts.c.ended_at > begin)
    rows = connection.execute(
        select(*columns, runs.c.gpu_share)
        .join(attempts, mine)
        .join(runs, runs.c.id == placements.c.run_id)
        .where(placements.c.cluster == cluster, placements.c.host != "", recent)
    )
    nodes: dict[str, list[Span]] = defaultdict(list)
    gpus = []
    for row in rows:
        since, until = row.granted_at or row.created_at, row.ended_at or now
        nodes[row.node].append(Span(since, until))
        if row.gpus:
            gpus.append(Span(since, until, len(row.gpus) * (row.gpu_share or 1.0)))
    return nodes, gpus


def _states(connection: Connection, cluster: str) -> dict[str, list[tuple[float, str]]]:
    table = tables.node_history
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    query = select(table.c.name, table.c.at, table.c.state).where(table.c.cluster == cluster).order_by(table.c.id)
    for name, at, state in connection.execute(query):
        found[name].append((at, state))
    return found


def _waiting(connection: Connection, cluster: str, begin: float, now: float) -> list[Span]:
    """Runs between their submission and their first start."""
    runs, end = tables.runs, func.coalesce(tables.runs.c.started_at, tables.runs.c.ended_at, now)
    query = select(runs.c.queued_at, end).where(runs.c.compute == cluster, runs.c.queued_at.is_not(None), end > begin)
    return [Span(queued_at, started_at) for queued_at, started_at in connection.execute(query)]
