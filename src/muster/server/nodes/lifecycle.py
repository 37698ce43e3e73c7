"""The nodes of clusters are started, set up, used and removed: load, decide (pure), apply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from muster.control.scheduling.autoscale import Limits, Member, Scaling, Wanted, autoscale
from muster.control.scheduling.capacity import Condition, fitting
from muster.control.scheduling.model import Node
from muster.control.scheduling.nodes import Change, Seen, next_state
from muster.defaults import NODE_STRIKES, WATCH_S
from muster.engines.base import NodeState
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS
from muster.server.hub import wait_at_most
from muster.server.nodes import clusters
from muster.server.nodes.agents import ensure_agents, poll
from muster.server.nodes.clusters import NodeRecord
from muster.wire import states
from muster.wire.verdicts import code_of

log = logging.getLogger("muster.server")

_LOOK_AHEAD = 1000
_MOST_PARTS = 64
_PLACEMENTS = tables.placements
_BUSY = select(_PLACEMENTS.c.node).where(_PLACEMENTS.c.phase.in_(states.IS_OPEN))
_RUNS, _ATTEMPTS, _STATES = tables.runs, tables.attempts, tables.node_states
_OVER = (
    select(_ATTEMPTS.c.run_id, _ATTEMPTS.c.number, _ATTEMPTS.c.verdict)
    .join(_RUNS, (_RUNS.c.id == _ATTEMPTS.c.run_id) & (_RUNS.c.attempt == _ATTEMPTS.c.number))
    .where(
        _RUNS.c.id.in_(bindparam("ids", expanding=True)),
        _RUNS.c.status.in_((states.QUEUED, *states.TERMINAL)),
        _ATTEMPTS.c.ended_at.is_not(None),
    )
)
_USED_BY = select(_PLACEMENTS.c.node).where(
    _PLACEMENTS.c.run_id == bindparam("of_run"), _PLACEMENTS.c.number == bindparam("of_attempt")
)
_FORGIVE = update(_STATES).where(_STATES.c.name.in_(_USED_BY), _STATES.c.strikes > 0).values(strikes=0)


async def tend_clusters(context: Context) -> None:
    """Start nodes that the queue can use, remove those that nobody uses, and keep their states."""
    while True:
        await wait_at_most(context.hub.clusters, WATCH_S)
        context.hub.clusters.clear()
        try:
            for row in await context.database.read(lambda c: c.execute(CLUSTERS).all()):
                if clusters.scales(context, clusters.cluster_of(row)):
                    await _tend(context, row)
        except Exception:
            log.exception("updating the clusters failed; it is tried again")
            await asyncio.sleep(WATCH_S)


@dataclass(frozen=True)
class _Load:
    """What is recorded of a cluster's nodes."""

    known: dict[str, NodeRecord]
    busy: set[str]


async def _tend(context: Context, row: Any) -> None:
    loaded = await context.database.read(partial(_load, row.name))
    loaded.busy.update(node for _, node in context.runs.builds.nodes())
    _ask_to_leave(context, loaded)
    lives = await poll(context, [(row.name, name) for name in loaded.known]) if loaded.known else {}
    await _recall(context, row, loaded, lives)
    changes = _changes(context, loaded, lives)
    scaling = _scale(context, row, loaded, {change.name: change.state for change in changes})
    offers = clusters.offered(context, clusters.cluster_of(row))
    added = [node.name for node in offers if node.name not in loaded.known][: scaling.add]
    missing = _missing(context, loaded, lives)
    if missing:
        await ensure_agents(context, [(row.name, name) for name in missing])
    if not (changes or added or scaling.remove):
        if row.state == clusters.DELETING and not loaded.known:
            await context.database.write(partial(_delete_if_unused, context, name=row.name))
        return
    changes += [Change(name, clusters.PREPARING, "its agent is being started") for name in added]
    changes += [Change(name, clusters.LEAVING, _why_leaving(row, loaded, name)) for name in scaling.remove]
    await context.database.write(lambda transaction: _apply(transaction, row.name, changes))
    gone = [change.name for change in changes if change.state == clusters.GONE]
    engine = context.nodes.engines.owner(row.engine)
    if gone and engine is not None:
        await asyncio.to_thread(engine.release, clusters.cluster_of(row), gone)
    for change in changes:
        _follow_up(context, change)
    context.hub.changed(nodes=scaling.remove, queue=True)
    if added:
        await ensure_agents(context, [(row.name, name) for name in added])


async def _recall(context: Context, row: Any, loaded: _Load, lives: Mapping[str, NodeState]) -> None:
    """Give back nodes that should leave and are not up yet: they are still in the queue of their own manager."""
    engine = context.nodes.engines.owner(row.engine)
    absent = [
        name
        for name, item in loaded.known.items()
        if item.state == clusters.LEAVING and name not in context.hub.contacts and lives[name].life == "starting"
    ]
    if absent and engine is not None:
        await asyncio.to_thread(engine.release, clusters.cluster_of(row), absent)


def judge_nodes(transaction: Transaction, changed: Sequence[str]) -> dict[str, dict[str, NodeRecord]]:
    """Count failures that look like the node's, of runs that have just ended; several in a row set a node aside.

    Returns what is recorded of all nodes afterwards.
    """
    found = clusters.load_states(transaction)
    known = {row.name: row for rows in found.values() for row in rows.values()}
    if not changed or not known:
        return found
    struck: dict[str, int] = {}
    for row in transaction.execute(_OVER, {"ids": changed}).all():
        verdict = row.verdict or {}
        if code_of(verdict.get("code", "")).blames_node and verdict.get("node") in known:
            node = known[verdict["node"]]
            struck[node.name] = struck.get(node.name, node.strikes) + 1
            _strike(transaction, node, struck[node.name], row.run_id, verdict["code"])
        elif verdict.get("code") == "completed" and (struck or any(node.strikes for node in known.values())):
            transaction.execute(_FORGIVE, {"of_run": row.run_id, "of_attempt": row.number})
    return clusters.load_states(transaction) if struck else found


def _strike(transaction: Transaction, node: NodeRecord, strikes: int, run_id: str, code: str) -> None:
    table = tables.node_states
    where = (table.c.cluster == node.cluster, table.c.name == node.name)
    transaction.execute(update(table).where(*where).values(strikes=strikes))
    if strikes >= NODE_STRIKES and node.state != clusters.UNUSABLE:
        last = f"the last was {run_id}: {code}"
        why = f"set aside after {strikes} failures in a row that look like the node's; {last}"
        clusters.set_state(transaction, node.cluster, node.name, clusters.UNUSABLE, why)


def _load(name: str, connection: Connection) -> _Load:
    known = clusters.load_states(connection).get(name, {})
    rows = connection.execute(_BUSY.where(_PLACEMENTS.c.cluster == name)).all() if known else []
    return _Load(known, {row.node for row in rows})


def _ask_to_leave(context: Context, loaded: _Load) -> None:
    """Ask agents to leave whose nodes were to go already before the server restarted."""
    going = (clusters.LEAVING, clusters.PREEMPTED)
    leaving = {name for name, row in loaded.known.items() if row.state in going}
    new = leaving - context.hub.leaving_nodes
    context.hub.leaving_nodes |= new
    if new:
        context.hub.changed(nodes=new)


def _missing(context: Context, loaded: _Load, lives: Mapping[str, NodeState]) -> list[str]:
    """Nodes that were recorded before the server restarted, and whose agents were never requested."""
    return [
        name
        for name, row in loaded.known.items()
        if row.state == clusters.PREPARING
        and name not in context.nodes.agent_tokens
        and lives.get(name, NodeState("gone")).life == "gone"
    ]


def _changes(context: Context, loaded: _Load, lives: Mapping[str, NodeState]) -> list[Change]:
    found = []
    for name, row in loaded.known.items():
        contact = context.hub.contacts.get(name)
        life, why = lives.get(name, NodeState("gone"))
        seen = Seen(
            name,
            row.state,
            row.since,
            life,
            why,
            here=contact is not None,
            setup_error=contact.setup_error if contact else None,
            busy=name in loaded.busy,
            taken_back=name in context.hub.taken_back,
        )
        change = next_state(seen, clock.now())
        if change is not None:
            found.append(change)
    return found


def _scale(context: Context, row: Any, loaded: _Load, changed: dict[str, str]) -> Scaling:
    options, now = clusters.options_of(row), clock.now()
    nodes = {node.name: node for node in clusters.offered(context, clusters.cluster_of(row))}
    members = []
    for name, item in loaded.known.items():
        state = changed.get(name, item.state)
        if state == clusters.GONE:
            continue
        members.append(
            Member(
                name,
                busy=name in loaded.busy or state == clusters.RUNNING,
                idle_s=now - item.since if state == clusters.IDLE == item.state else 0.0,
                usable=state in (*clusters.TAKES_GANGS, clusters.PREPARING) and not item.cordoned and name in nodes,
                leaving=state in (clusters.LEAVING, clusters.PREEMPTED),
            )
        )
    if row.state == clusters.STOPPED:
        return autoscale(members, (), Limits(0, 0, 0.0))
    least = 0 if row.state == clusters.DELETING else options.min_nodes
    idle_s = 0.0 if row.state == clusters.DELETING else options.idle_seconds_before_scaledown
    free = {member.name for member in members if member.usable and not member.busy and not member.leaving}
    return autoscale(members, _wanted(context, row.name, nodes, free), Limits(least, len(nodes), idle_s))


def _wanted(context: Context, cluster: str, nodes: dict[str, Node], free: Collection[str]) -> list[Wanted]:
    """The gangs that wait for nodes; one that waits for its quota or its time needs none."""
    found: list[Wanted] = []
    node = next(iter(nodes.values()), None)
    if node is None:
        return found
    for gang in context.runs.queue.first_waiting(cluster, _LOOK_AHEAD):
        one = Condition(False, len(node.gpus), node.cpus, len(node.gpus), 1)
        used = 0
        alone = gang.need._replace(nodes=1)
        if gang.need.share < 1:
            many = fitting(one._replace(members=_MOST_PARTS), gang.need._replace(nodes=_MOST_PARTS))
            found.append(Wanted(gang.need.nodes, max(1, many), len(gang.excluded.intersection(free))))
            continue
        if gang.apart:
            found.append(Wanted(gang.need.nodes, 1, len(gang.excluded.intersection(free))))
            continue
        # An empty node takes the first part even if it is too large, then whatever still fits.
        while used < _MOST_PARTS and (used == 0 or fitting(one, alone)):
            used += 1
            taken = len(node.gpus) if alone.gpus is None else alone.gpus
            one = one._replace(free_gpus=max(0, one.free_gpus - taken), free_slots=max(0, one.free_slots - alone.ranks))
        found.append(Wanted(gang.need.nodes, used, len(gang.excluded.intersection(free))))
    return found


def _apply(transaction: Transaction, cluster: str, changes: Sequence[Change]) -> None:
    for change in changes:
        clusters.set_state(transaction, cluster, change.name, change.state, change.reason)
        if change.state == clusters.GONE:
            transaction.execute(
                delete(tables.nodes).where(tables.nodes.c.cluster == cluster, tables.nodes.c.name == change.name)
            )


def _follow_up(context: Context, change: Change) -> None:
    if change.state == clusters.LEAVING:
        context.hub.leaving_nodes.add(change.name)
    elif change.state in (clusters.GONE, clusters.PREPARING):
        context.hub.leaving_nodes.discard(change.name)
        context.hub.taken_back.discard(change.name)
        context.hub.contacts.pop(change.name, None)


def _why_leaving(row: Any, loaded: _Load, name: str) -> str:
    if row.state in (clusters.STOPPED, clusters.DELETING):
        return f"the cluster is {'stopped' if row.state == clusters.STOPPED else 'being deleted'}"
    idle_s = clock.now() - loaded.known[name].since
    return f"idle for {idle_s:.0f} s" if loaded.known[name].state == clusters.IDLE else "the cluster was made smaller"


def _delete_if_unused(context: Context, transaction: Transaction, name: str) -> None:
    runs = tables.runs
    uses = select(runs.c.id).where(runs.c.compute == name, runs.c.status.in_((*states.ACTIVE, states.QUEUED)))
    if transaction.execute(uses.limit(1)).first() is None:
        clusters.forget(context, transaction, name)
