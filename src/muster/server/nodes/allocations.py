"""Allocations: requested from engines with a queue of their own, and given back to them.

Such a node has a new name for every attempt, `RUN.ATTEMPT.RANK`, because the machine behind it is only known
once its agent says hello.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select

from muster.defaults import TIDY_S
from muster.engines.base import Allocation, Cluster, Gang, GangRequest, Scripted
from muster.job.spec import JobSpec
from muster.launch.layout import demand
from muster.paths import NodePaths
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTER, CLUSTERS
from muster.server.nodes import queue_jobs
from muster.server.nodes.clusters import cluster_of
from muster.wire import states
from muster.wire.node.agents import ServerContact
from muster.wire.verdicts import Refusal

log = logging.getLogger("muster.server")

PRIORITIES = {"low": 0, "medium": 1, "high": 2}

Key = tuple[str, int]


def node_name(run_id: str, number: int, node_rank: int) -> str:
    return f"{run_id}.{number}.{node_rank}"


def attempt_of(node: str) -> Key:
    """The attempt that a node came with."""
    rest, _, _ = node.rpartition(".")
    run_id, _, number = rest.rpartition(".")
    return run_id, int(number)


def is_brought(node: str, run_id: str, number: int, node_rank: int) -> bool:
    """Whether a node came with an attempt; its host is then the name that people know."""
    return node == node_name(run_id, number, node_rank)


def allocation_id(context: Context, key: Key) -> str:
    """Unique among workspaces, because queues are shared."""
    return f"{context.workspace_id[:8]}-{key[0]}.{key[1]}"


def node_folders(context: Context, key: Key, node_ranks: Iterable[int]) -> dict[str, NodePaths]:
    """The nodes of an attempt, by name."""
    return {name: context.paths.node(name) for name in (node_name(*key, rank) for rank in node_ranks)}


def time_left_s(connection: Connection, run_id: str, timeout_s: float | None, since: int | None) -> float | None:
    """What is left of the time limit of a run, which may run in slices from attempt `since` on."""
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


def preview(context: Context, cluster: Cluster, spec: JobSpec) -> str | None:
    """What would be submitted for a job; None where its engine starts agents itself."""
    engine = context.nodes.engines.queue(cluster.engine)
    if engine is None or not isinstance(engine, Scripted):
        return None
    need = demand(spec)
    key = ("RUN", 1)
    gang = Gang(
        *key,
        spec.display_name or "RUN",
        str(context.paths.handed_on),
        need.ranks_per_node,
        need.gpus_per_node,
        need.gpu_share,
        spec.limits.timeout,
        PRIORITIES[spec.queue_settings.priority],
    )
    folders = node_folders(context, key, range(need.num_nodes))
    return engine.script(GangRequest(allocation_id(context, key), cluster, folders, gang))


def cannot_reach(cluster: str, contact: ServerContact) -> Refusal:
    """The refusal of an attempt whose agent is alive and never reached this server, though the server is up."""
    return Refusal(
        "bad_input",
        f"its agent cannot reach the server: {contact.trouble}",
        "Give the cluster the server's address as its nodes see it, and submit again: "
        f"`muster cluster set {cluster} server_address=ADDRESS`.",
    )


def release_after(context: Context, transaction: Transaction, run: Any, number: int, followed: bool) -> None:
    """Once this is committed, give an attempt's allocation back; the attempt is over for good."""
    row = CLUSTER.first(transaction, run.compute)
    engine = context.nodes.engines.queue(row.engine) if row is not None else None
    if row is None or engine is None:
        return
    key = (run.id, number)
    folders = node_folders(context, key, range(run.num_nodes))
    allocation = Allocation(allocation_id(context, key), cluster_of(row), folders)
    context.nodes.allocations.pop(key, None)
    queue_jobs.end(context, transaction, cluster_of(row), key, engine.job(allocation))
    transaction.after_commit.append(lambda: context.hub.in_background(lambda: engine.release(allocation, followed)))


def see_agent(context: Context, node: str) -> None:
    """Note whether this machine sees the lock of a new agent, and so will see its end too."""
    paths = context.paths.node(node)
    if paths.agent_lives():
        paths.seen.touch()


def given_up(connection: Connection) -> list[tuple[str, str]]:
    """Nodes, with their clusters, that came with an attempt and of which nothing more is expected."""
    columns = tables.placements.c["cluster", "node", "run_id", "number", "node_rank"]
    rows = connection.execute(select(*columns).where(tables.placements.c.phase == states.GIVEN_UP))
    return sorted(
        (row.cluster, row.node) for row in rows if is_brought(row.node, row.run_id, row.number, row.node_rank)
    )


def tidy(context: Context) -> None:
    """Remove the folders, tokens and records of nodes whose attempt is over and whose agents have left."""
    queueing = {
        row.name
        for row in context.database.read_now(lambda c: c.execute(CLUSTERS).all())
        if context.nodes.engines.queue(row.engine)
    }
    if not queueing or not context.paths.nodes.is_dir():
        return
    for folder in sorted(context.paths.nodes.iterdir()):
        old = time.time() - folder.stat().st_mtime > TIDY_S
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
    context.nodes.agent_tokens.pop(folder.name, None)
    context.hub.contacts.pop(folder.name, None)
    context.hub.leaving_nodes.discard(folder.name)
    context.database.submit(lambda transaction: _forget(context, transaction, folder.name)).result()


def _forget(context: Context, transaction: Transaction, node: str) -> None:
    transaction.execute(delete(tables.nodes).where(tables.nodes.c.name == node))
    context.tokens.end_agents(transaction, [node])


def _cluster_of_folder(folder: Path) -> str | None:
    try:
        return str(json.loads(NodePaths(folder).config.read_text())["cluster"])
    except (OSError, ValueError, KeyError):
        return None


def shown_name(row: Any) -> str:
    """The name of a placement's node as people know it; of one that has not come, its rank."""
    if not is_brought(row.node, row.run_id, row.number, row.node_rank):
        return str(row.node)
    return str(row.host or f"node {row.node_rank}")


def named(row: Any) -> str:
    """The same inside a sentence."""
    name = shown_name(row)
    return name if name.startswith("node ") else f"node {name}"
