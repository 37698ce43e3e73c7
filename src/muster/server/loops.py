"""The loops: load, decide (pure), apply. One wakes on changes of the queue, one watches over nodes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection, select

from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.passes import schedule
from muster.defaults import NODE_LOST_S, NODE_REVIVE_S, PUBLISH_S, TIDY_S, WATCH_S
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS
from muster.server.nodes import allocations, clusters, lifecycle
from muster.server.nodes.agents import ensure_agents, poll
from muster.server.runs import attempts
from muster.server.runs.queue import RunQueue, load_running
from muster.wire import states

log = logging.getLogger("muster.server")


async def scheduler(context: Context) -> None:
    """Start what fits, whenever something in the queue or on the nodes has changed."""
    while True:
        await context.hub.scheduler.wait()
        context.hub.scheduler.clear()
        try:
            started = await context.database.write(lambda transaction: schedule_pass(context, transaction))
        except Exception:
            log.exception("a pass of the scheduler failed; it is tried again")
            context.runs.queue = RunQueue()
            await asyncio.sleep(WATCH_S)
            context.hub.scheduler.set()
            continue
        if started:
            await ensure_agents(context, started)


def schedule_at_once(context: Context) -> Callable[[Transaction], None]:
    """For writes that freed nodes: what starts next is decided in the same commit, without a further round."""

    def work(transaction: Transaction) -> None:
        try:
            with transaction.connection.begin_nested():
                started = schedule_pass(context, transaction)
        except Exception:
            log.exception("a pass of the scheduler failed; the loop tries again")
            context.runs.queue = RunQueue()
            transaction.after_commit = [lambda: context.hub.changed(queue=True)]
            return
        if started:
            transaction.after_commit.append(lambda: context.hub.spawn(ensure_agents(context, started)))

    return work


def schedule_pass(context: Context, transaction: Transaction) -> list[tuple[str, str]]:
    """One pass; returns the (cluster, node) pairs that got something to do."""
    queue, now = context.runs.queue, time.time()
    changed = queue.update(transaction)
    lifecycle.judge_nodes(transaction, changed)
    rows = {row.name: row for row in transaction.execute(CLUSTERS)}
    known = clusters.load_states(transaction)
    offers = {
        name: clusters.usable(context, clusters.cluster_of(row), known.get(name, {})) for name, row in rows.items()
    }
    rules = {
        name: clusters.rules_of(context, row, known.get(name, {}), len(offers[name])) for name, row in rows.items()
    }
    capacity = Capacity(offers)
    for running in load_running(transaction):
        capacity.hold(running)
    decision = schedule(queue.queues, capacity, rules, now)
    queue.explain(decision, capacity, rules, now)
    started: list[tuple[str, str]] = []
    for start in decision.starts:
        to_come = rules[capacity.running[start.run_id].cluster].hands_on
        started += attempts.begin(context, transaction, start, to_come)
    for item in decision.preemptions:
        attempts.preempt(context, transaction, item.run_id, f"{item.for_title} has a higher priority")
    return sorted(set(started))


async def watch_nodes(context: Context) -> None:
    """Notice agents that are gone, bring them back to deliver, and give up on those that stay away."""
    gone_since: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    tidied = loop.time()
    while True:
        await asyncio.sleep(WATCH_S)
        try:
            if loop.time() - tidied > TIDY_S:
                tidied = loop.time()
                await asyncio.to_thread(allocations.tidy, context)
            open_nodes = await context.database.read(_open_nodes)
            lives = await poll(context, open_nodes)
            over = await _note_endings(context, {node for _, node in open_nodes})
            for cluster, node in open_nodes:
                life, why = lives.get(node, ("gone", "its cluster was deleted"))
                silent = life == "up" and context.hub.silent_s(node) > NODE_LOST_S
                if life != "gone" and not silent:
                    gone_since.pop(node, None)
                    continue
                waited_s = loop.time() - gone_since.setdefault(node, loop.time())
                context.hub.contacts.pop(node, None)
                give_up = waited_s > NODE_REVIVE_S or node in over
                await context.database.write(partial(attempts.lose_node, context, node=node, give_up=give_up, why=why))
                if give_up:
                    gone_since.pop(node, None)
                else:
                    await ensure_agents(context, [(cluster, node)])
        except Exception:
            log.exception("watching over the nodes failed; it is tried again")


async def _note_endings(context: Context, open_nodes: set[str]) -> set[str]:
    """Keep what engines say of allocations that are over; returns their nodes: nothing more comes of them."""
    over: set[str] = set()
    for key, state in list(context.nodes.allocations.items()):
        if open_nodes.isdisjoint(state.nodes):
            context.nodes.allocations.pop(key, None)
            context.nodes.announced.discard(key)
        elif state.reason and state.ending is None and key not in context.nodes.announced:
            # Said once to those who follow the run; `muster show` has the reason of the moment.
            context.nodes.announced.add(key)
            await context.database.write(partial(attempts.announce, context, run_id=key[0], text=state.reason))
        elif state.ending is not None:
            run_id, number = key
            work = partial(attempts.note_ending, context, run_id=run_id, number=number, ending=state.ending)
            await context.database.write(work)
            if state.ending.code == "preempted" and "up" in state.nodes.values():
                # A notice: its ranks have time to save what they have.
                why = state.ending.message
                await context.database.write(partial(attempts.preempt, context, run_id=run_id, why=why))
            over |= {node for node, life in state.nodes.items() if life == "gone"}
    return over


def _open_nodes(connection: Connection) -> list[tuple[str, str]]:
    table = tables.placements
    query = select(table.c.cluster, table.c.node).where(table.c.phase.in_(states.IS_OPEN)).distinct()
    return sorted((row.cluster, row.node) for row in connection.execute(query))


async def publish_streams(context: Context) -> None:
    """Bring what attempts print to a store that lies elsewhere, while they run and after a server was killed."""
    while context.files.store.local_root is None:
        try:
            for run, attempt in await asyncio.to_thread(lambda: list(context.files.streams.attempts())):
                await asyncio.to_thread(context.files.streams.publish, context.files.store, run, attempt, False)
        except Exception:
            log.exception("the workspace store did not take what runs print; it is tried again")
        await asyncio.sleep(PUBLISH_S)
