"""Allocations: what an engine is asked for, told and heard of, for engines that bring nodes with each attempt.

Such a node has a name of its own for every attempt, `RUN.ATTEMPT.RANK`, because the machine behind it is only known
once its agent has come.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select

from muster import errors
from muster.control import states
from muster.engines.base import Allocation, Cluster, Gang, Scripted
from muster.job.spec import JobSpec
from muster.launch.layout import demand
from muster.paths import NodePaths
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS, RUN
from muster.server.nodes.clusters import cluster_of
from muster.wire.node.agents import AgentConfig

log = logging.getLogger("muster.server")

SCRIPT = "logs/submitted.sh"
PRIORITIES = {"low": 0, "medium": 1, "high": 2}
_TIDY_AFTER_S = 60.0

Key = tuple[str, int]


def node_name(run_id: str, number: int, node_rank: int) -> str:
    return f"{run_id}.{number}.{node_rank}"


def attempt_of(node: str) -> Key:
    """The attempt that a node was brought for."""
    rest, _, _ = node.rpartition(".")
    run_id, _, number = rest.rpartition(".")
    return run_id, int(number)


def is_brought(node: str, run_id: str, number: int, node_rank: int) -> bool:
    """Whether a node came with an attempt; its host is then the name that people know."""
    return node == node_name(run_id, number, node_rank)


def allocation_id(context: Context, key: Key) -> str:
    """Unlike that of any other workspace, because queues are shared."""
    return f"{context.workspace_id[:8]}-{key[0]}.{key[1]}"


def group(context: Context, connection: Connection, nodes: Sequence[tuple[str, str]]) -> list[Allocation]:
    """The (cluster, node) pairs as their engines know them; agents are only named."""
    rows = {row.name: row for row in connection.execute(CLUSTERS)}
    found: list[Allocation] = []
    for name in sorted({cluster for cluster, _ in nodes} & rows.keys()):
        cluster = cluster_of(rows[name])
        mine = [_nameless(context, name, node) for owner, node in nodes if owner == name]
        if not context.engines[cluster.engine].queues:
            found.append(Allocation(name, cluster, tuple(mine)))
            continue
        by_attempt: dict[Key, list[AgentConfig]] = defaultdict(list)
        for agent in mine:
            by_attempt[attempt_of(agent.node)].append(agent)
        found += [Allocation(allocation_id(context, key), cluster, tuple(part)) for key, part in by_attempt.items()]
    return found


def whole(context: Context, connection: Connection, allocation: Allocation) -> Allocation:
    """An allocation of a queueing engine with all its nodes, and what their engine must know of the gang."""
    run_id, number = attempt_of(allocation.agents[0].node)
    run = connection.execute(RUN.select, {"key_id": run_id}).one()
    agents = [
        _nameless(context, allocation.cluster.name, node_name(run_id, number, rank)) for rank in range(run.num_nodes)
    ]
    left_s = time_left_s(connection, run_id, run.timeout_s, run.budget_from)
    return replace(allocation, agents=tuple(agents), gang=_gang(context, run, number, left_s))


def time_left_s(connection: Connection, run_id: str, timeout_s: float | None, since: int | None) -> float | None:
    """What is left of the time limit of a run, which may go on in slices from attempt `since` on."""
    if timeout_s is None:
        return None
    attempts = tables.attempts
    query = select(attempts.c.started_at, attempts.c.ended_at, attempts.c.verdict).where(
        attempts.c.run_id == run_id, attempts.c.number >= (since or 1), attempts.c.ended_at.is_not(None)
    )
    used: float = sum(
        row.ended_at - row.started_at
        for row in connection.execute(query)
        if row.started_at is not None and (row.verdict or {}).get("code") == "time_slice"
    )
    return max(1.0, float(timeout_s) - used)


def keep_script(context: Context, allocation: Allocation) -> None:
    """Keep what is handed on with the run, where people look at its files."""
    engine = context.engines[allocation.cluster.engine]
    if not isinstance(engine, Scripted) or allocation.gang is None:
        return
    try:
        data = engine.script(allocation).encode()
    except errors.JobError:
        # There is no script for what cannot be asked for; the engine says so itself.
        return
    run_id, number = allocation.gang.run, allocation.gang.attempt
    context.store.put(f"runs/{run_id}/attempts/{number}/{SCRIPT}", [data])
    row = {"run_id": run_id, "attempt": number, "path": SCRIPT, "node_rank": 0}
    values = {**row, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def work(transaction: Transaction) -> None:
        files = tables.files
        transaction.execute(delete(files).where(*(files.c[name] == value for name, value in row.items())))
        transaction.execute(files.insert().values(**values))

    context.database.submit(work).result()


def preview(context: Context, cluster: Cluster, spec: JobSpec) -> str | None:
    """What would be handed on for a job; None where its engine starts agents itself."""
    engine = context.engines[cluster.engine]
    if not isinstance(engine, Scripted):
        return None
    need = demand(spec)
    agents = tuple(_nameless(context, cluster.name, node_name("RUN", 1, rank)) for rank in range(need.num_nodes))
    gang = Gang(
        "RUN",
        1,
        spec.display_name or "RUN",
        str(context.paths.handed_on),
        need.ranks_per_node,
        need.gpus_per_node,
        spec.limits.timeout,
        PRIORITIES[spec.queue_settings.priority],
    )
    return engine.script(Allocation(allocation_id(context, ("RUN", 1)), cluster, agents, gang))


def release_after(context: Context, transaction: Transaction, run: Any, number: int, followed: bool) -> None:
    """Once this is committed, give back what an attempt had; the last word on it has been said."""
    row = transaction.execute(CLUSTERS.where(tables.clusters.c.name == run.compute)).first()
    if row is None or row.engine not in context.engines or not context.engines[row.engine].queues:
        return
    key = (run.id, number)
    agents = [_nameless(context, row.name, node_name(run.id, number, rank)) for rank in range(run.num_nodes)]
    allocation = Allocation(allocation_id(context, key), cluster_of(row), tuple(agents), followed=followed)
    engine = context.engines[row.engine]
    context.states.pop(key, None)
    transaction.after_commit.append(lambda: context.hub.in_background(lambda: engine.release(allocation)))


def tidy(context: Context) -> None:
    """Remove the folders, tokens and records of nodes whose attempt is over and whose agents have left."""
    queueing = {
        row.name
        for row in context.database.read_now(lambda c: c.execute(CLUSTERS).all())
        if context.engines[row.engine].queues
    }
    if not queueing or not context.paths.nodes.is_dir():
        return
    for folder in sorted(context.paths.nodes.iterdir()):
        old = time.time() - folder.stat().st_mtime > _TIDY_AFTER_S
        if not old or _cluster_of_folder(folder) not in queueing or NodePaths(folder).agent_lives():
            continue
        if not context.database.read_now(partial(_is_wanted, folder.name)):
            _remove(context, folder)


def _is_wanted(node: str, connection: Connection) -> bool:
    placements = tables.placements
    open_or_lost = placements.c.phase.in_((*states.IS_OPEN, states.GIVEN_UP))
    mine = select(placements.c.run_id).where(placements.c.node == node, open_or_lost)
    return connection.execute(mine).first() is not None


def _remove(context: Context, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    context.agent_tokens.pop(folder.name, None)
    context.hub.contacts.pop(folder.name, None)
    context.hub.leaving_nodes.discard(folder.name)
    context.database.submit(lambda transaction: _forget(transaction, folder.name)).result()


def _forget(transaction: Transaction, node: str) -> None:
    tokens = tables.tokens
    transaction.execute(delete(tables.nodes).where(tables.nodes.c.name == node))
    transaction.execute(delete(tokens).where(tokens.c.role == "agent", tokens.c.subject == node))


def _cluster_of_folder(folder: Path) -> str | None:
    try:
        return str(json.loads(NodePaths(folder).config.read_text())["cluster"])
    except (OSError, ValueError, KeyError):
        return None


def _gang(context: Context, run: Any, number: int, limit_s: float | None) -> Gang:
    return Gang(
        run=run.id,
        attempt=number,
        title=run.display_name or run.id,
        folder=str(context.paths.handed_on),
        ranks_per_node=run.ranks_per_node,
        gpus_per_node=run.gpus_per_node,
        time_limit_s=limit_s,
        priority=run.priority,
        excluded=tuple(run.excluded_nodes or ()),
    )


def _nameless(context: Context, cluster: str, node: str) -> AgentConfig:
    root = str(context.paths.node(node).root)
    return AgentConfig(node=node, cluster=cluster, allocation=cluster, root=root, server=(), token="")


def shown_names(placements: Iterable[Any]) -> dict[tuple[int, int], str]:
    """The name of each node as people know it, by attempt and node rank."""
    return {(row.number, row.node_rank): shown_name(row) for row in placements}


def shown_name(row: Any) -> str:
    brought = is_brought(row.node, row.run_id, row.number, row.node_rank)
    return str(row.host if brought and row.host else row.node)
