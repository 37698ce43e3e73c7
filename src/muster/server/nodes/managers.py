"""Managers of clusters that do not answer: followers of runs are notified, and the queue goes on when they return."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from muster.engines.base import QueueEngine
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS, add_note
from muster.server.nodes.clusters import cluster_of
from muster.wire import states
from muster.wire.states import Level

_NOTIFY_AFTER_S = 5.0
"""A manager that is only busy is not worth a notice."""
_MAX_NOTIFIED = 1000
_RUNS = tables.runs
_UNFINISHED = _RUNS.c.status.in_((*states.ACTIVE, states.QUEUED))


@dataclass
class Manager:
    """What is known of a cluster's own manager."""

    trouble: str = ""
    since: float = 0.0
    notified: bool = False
    num_nodes: int = 0


async def watch(context: Context, managers: dict[str, Manager]) -> None:
    """Check the managers of clusters that have runs; engines cache what managers say, so this costs no call."""
    for row in await context.database.read(_in_use):
        engine = context.nodes.engines.queue(row.engine)
        if engine is not None:
            await _watch(context, row, engine, managers.setdefault(row.name, Manager()))


async def _watch(context: Context, row: Any, engine: QueueEngine, manager: Manager) -> None:
    cluster = cluster_of(row)
    num_nodes = len(await asyncio.to_thread(engine.nodes, cluster))
    trouble = engine.trouble(cluster)
    if bool(trouble) != bool(manager.trouble) or num_nodes != manager.num_nodes:
        context.hub.changed(queue=True)
    if trouble and not manager.trouble:
        manager.since = time.monotonic()
    manager.trouble, manager.num_nodes = trouble, num_nodes
    if trouble and not manager.notified and time.monotonic() - manager.since > _NOTIFY_AFTER_S:
        manager.notified = True
        await context.database.write(partial(_notify, context, name=row.name, level="warning", text=trouble))
    elif not trouble and manager.notified:
        manager.notified = False
        text = f"{row.engine.title()} answers again"
        await context.database.write(partial(_notify, context, name=row.name, level="info", text=text))


def _in_use(connection: Connection) -> list[Any]:
    """The clusters that have runs."""
    used = select(_RUNS.c.id).where(_RUNS.c.compute == tables.clusters.c.name, _UNFINISHED).exists()
    return list(connection.execute(CLUSTERS.where(used)))


def _notify(context: Context, transaction: Transaction, name: str, level: Level, text: str) -> None:
    query = select(_RUNS.c.id).where(_RUNS.c.compute == name, _UNFINISHED).limit(_MAX_NOTIFIED)
    ids = list(transaction.execute(query).scalars())
    for run_id in ids:
        add_note(transaction, run_id, level, text)
    transaction.after_commit.append(lambda: context.hub.changed(runs=ids))
