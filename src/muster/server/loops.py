"""The loops: load, decide (pure), apply. One wakes on changes of the queue, one watches nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection, select

from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.passes import schedule
from muster.defaults import (
    BACKUP_FIRST_S,
    BACKUP_S,
    BACKUPS_KEPT,
    NODE_LOST_S,
    NODE_REVIVE_S,
    PUBLISH_S,
    RECORD_S,
    RECORDS_AT_ONCE,
    SCHEDULE_AGAIN_S,
    TIDY_S,
    WATCH_S,
)
from muster.host import clock
from muster.server import clock as machine_clock
from muster.server import disk
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.backup import AutomaticBackups
from muster.server.database.connection import Transaction
from muster.server.database.records import CLUSTERS, RUN, add_note
from muster.server.database.reserve import Reserve, Room
from muster.server.environments import building
from muster.server.nodes import allocations, clusters, lifecycle, managers
from muster.server.nodes.agents import bring_agents, ensure_agents, poll
from muster.server.runs import attempts, changes, record_files, retries
from muster.wire import states

log = logging.getLogger("muster.server")

_MAYBE_BEHIND = 100


async def kept_up(loop_of: Callable[[Context], Awaitable[None]], context: Context) -> None:
    """Run a loop for the server's lifetime: after an error it is restarted."""
    while True:
        try:
            return await loop_of(context)
        except Exception:
            log.exception("%s failed; it is restarted", loop_of.__name__)
            await asyncio.sleep(WATCH_S)
            context.hub.changed(queue=True)


async def scheduler(context: Context) -> None:
    """Start what fits, whenever the queue or the nodes have changed, and from time to time while runs wait.

    Time alone changes decisions: a run that has waited long may pass others, or have them paused.
    """
    while True:
        try:
            async with asyncio.timeout(SCHEDULE_AGAIN_S):
                await context.hub.scheduler.wait()
        except TimeoutError:
            if not context.runs.queue.has_waiting:
                continue
        context.hub.scheduler.clear()
        try:
            started = await context.database.write(lambda transaction: schedule_pass(context, transaction))
        except Exception:
            log.exception("a pass of the scheduler failed; it is tried again")
            context.runs.start_over()
            await asyncio.sleep(WATCH_S)
            context.hub.scheduler.set()
            continue
        bring_agents(context, started)


def schedule_at_once(context: Context) -> Callable[[Transaction], None]:
    """After writes that freed nodes: decide in the same commit what starts next."""

    def work(transaction: Transaction) -> None:
        try:
            with transaction.connection.begin_nested():
                started = schedule_pass(context, transaction)
        except Exception:
            log.exception("a pass of the scheduler failed; the loop tries again")
            context.runs.start_over()
            transaction.after_commit = [lambda: context.hub.changed(queue=True)]
            return
        if started:
            transaction.after_commit.append(lambda: bring_agents(context, started))

    return work


def schedule_pass(context: Context, transaction: Transaction) -> list[tuple[str, str]]:
    """One pass; returns the (cluster, node) pairs that got work."""
    if context.disk.full:
        # Starting needs disk space; the loop that watches the disk triggers the next pass.
        return []
    queue, now = context.runs.queue, clock.now()
    changed = queue.update(transaction)
    known = lifecycle.judge_nodes(transaction, changed)
    rows = {row.name: row for row in transaction.execute(CLUSTERS)}
    offers = {
        name: clusters.usable(context, clusters.cluster_of(row), known.get(name, {})) for name, row in rows.items()
    }
    rules = {
        name: clusters.rules_of(context, row, known.get(name, {}), len(offers[name])) for name, row in rows.items()
    }
    capacity = Capacity(offers)
    running = queue.running(transaction, changed, now)
    for item in running:
        capacity.hold(item, now)
    never = queue.dependencies.update(transaction, changed)
    if never:
        changes.give_up(context, transaction, never)
    held = queue.dependencies.held
    rules = {name: replace(rule, held=held) for name, rule in rules.items()} if held else rules
    rules = queue.with_shares(rules, running, now)
    rules, started = building.before_pass(context, transaction, capacity, rules)
    decision = schedule(queue.queues, capacity, rules, now)
    queue.note(transaction, decision, capacity, rules, now)
    queue.explain(decision, capacity, rules, now)
    for start in decision.starts:
        to_come = rules[capacity.running[start.run_id].cluster].hands_on
        started += attempts.begin(context, transaction, start, to_come)
    for preempted in decision.preemptions:
        attempts.preempt(context, transaction, preempted.run_id, preempted.why)
    return sorted(set(started))


async def watch_nodes(context: Context) -> None:
    """Notice agents that are gone, restart them to deliver, and give up on those that stay away."""
    gone_since: dict[str, float] = {}
    met: set[str] = set()
    known: dict[str, managers.Manager] = {}
    loop = asyncio.get_running_loop()
    tidied = loop.time()
    while True:
        await asyncio.sleep(WATCH_S)
        try:
            if loop.time() - tidied > TIDY_S:
                tidied = loop.time()
                # Leftovers of given-up nodes are delivered once their engine reports that they have ended.
                await poll(context, await context.database.read(allocations.given_up))
                await asyncio.to_thread(allocations.tidy, context)
            await managers.watch(context, known)
            open_nodes = await context.database.read(_open_nodes)
            open_nodes = sorted({*open_nodes, *context.runs.builds.nodes()})
            lives = await poll(context, open_nodes)
            over = await _note_endings(context, {node for _, node in open_nodes})
            met = (met | context.hub.contacts.keys()) & {node for _, node in open_nodes}
            for cluster, node in open_nodes:
                life, why = lives.get(node, ("gone", "its cluster was deleted"))
                unreached = context.nodes.unreached.get(node) if node not in context.hub.contacts else None
                silent = life == "up" and (unreached is not None or context.hub.silent_s(node) > NODE_LOST_S)
                if life != "gone" and not silent:
                    gone_since.pop(node, None)
                    continue
                waited_s = loop.time() - gone_since.setdefault(node, loop.time())
                context.hub.contacts.pop(node, None)
                # A live agent that has never said hello may still be starting.
                on_its_way = life == "up" and unreached is None and node not in met
                give_up = waited_s > (NODE_LOST_S if on_its_way else NODE_REVIVE_S) or node in over
                lose = partial(attempts.lose_node, context, node=node, give_up=give_up, why=why, unreached=unreached)
                await context.database.write(lose)
                if give_up:
                    gone_since.pop(node, None)
                elif not context.nodes.asking[cluster].locked():
                    # If its engine is still starting it, it is requested again in the next round.
                    await ensure_agents(context, [(cluster, node)])
        except Exception:
            log.exception("watching the nodes failed; it is tried again")


async def _note_endings(context: Context, open_nodes: set[str]) -> set[str]:
    """Record the endings of allocations that engines report; returns their nodes, which deliver nothing more."""
    over: set[str] = set()
    for key, state in list(context.nodes.allocations.items()):
        if open_nodes.isdisjoint(state.nodes):
            context.nodes.allocations.pop(key, None)
            context.nodes.announced.discard(key)
        elif state.reason and state.ending is None and key not in context.nodes.announced:
            # Sent once to followers of the run; `muster show` has the current reason.
            context.nodes.announced.add(key)
            await context.database.write(partial(attempts.announce, context, run_id=key[0], text=state.reason))
        elif state.ending is not None:
            run_id, number = key
            work = partial(attempts.note_ending, context, run_id=run_id, number=number, ending=state.ending)
            await context.database.write(work)
            if state.ending.code == "preempted" and "up" in state.nodes.values():
                # With a warning time: its ranks can still save a checkpoint.
                why = state.ending.message
                await context.database.write(partial(attempts.preempt, context, run_id=run_id, why=why))
            over |= {node for node, life in state.nodes.items() if life == "gone"}
    return over


def _open_nodes(connection: Connection) -> list[tuple[str, str]]:
    table = tables.placements
    query = select(table.c.cluster, table.c.node).where(table.c.phase.in_(states.IS_OPEN)).distinct()
    return sorted((row.cluster, row.node) for row in connection.execute(query))


async def keep_records(context: Context) -> None:
    """Write the records of changed runs to the store, from which a lost database is rebuilt."""
    try:
        await asyncio.to_thread(_find_unrecorded, context)
    except Exception:
        log.exception("the records in the store could not be read")
    while True:
        await asyncio.sleep(RECORD_S)
        if not context.disk.full:
            await asyncio.to_thread(write_records, context, RECORDS_AT_ONCE)


def write_records(context: Context, most: int | None = None) -> None:
    """Update the store's records of runs from the database: of at most so many runs, or of all."""
    ids = context.runs.unrecorded.take(most)
    for start in range(0, len(ids), RECORDS_AT_ONCE):
        _keep_records(context, ids[start : start + RECORDS_AT_ONCE])


def _keep_records(context: Context, ids: list[str]) -> None:
    try:
        for run_id, record in context.database.read_now(lambda connection: record_files.load(connection, ids)).items():
            record_files.keep(context.files.store, run_id, record)
        known = context.database.read_now(lambda connection: record_files.still_there(connection, ids))
        for run_id in set(ids) - known:
            # The run was removed, perhaps meanwhile: its record must not come back.
            record_files.forget(context.files.store, run_id)
    except Exception:
        if len(ids) > 1:
            # One of them may be to blame: it must not block the others.
            for run_id in ids:
                _keep_records(context, [run_id])
            return
        log.exception("the record of %s was not written to the store; it is tried again", ids[0])
        context.runs.unrecorded.add(ids[0])


def _find_unrecorded(context: Context) -> None:
    """The newest runs, which a killed server may not have recorded, and those of older versions."""
    newest = select(tables.runs.c.id).order_by(tables.runs.c.seq.desc())
    ids = list(context.database.read_now(lambda connection: connection.execute(newest).scalars().all()))
    recorded = set(record_files.known_to(context.files.store)) if context.files.store.local_root else set(ids)
    for run_id in [*ids[:_MAYBE_BEHIND], *(run_id for run_id in ids if run_id not in recorded)]:
        context.runs.unrecorded.add(run_id)


async def keep_backups(context: Context) -> None:
    """Back the database up every hour."""
    backups = AutomaticBackups(context.paths.backups, BACKUPS_KEPT)
    await asyncio.sleep(BACKUP_FIRST_S)
    while True:
        try:
            if not context.disk.full and await asyncio.to_thread(backups.age_s) > BACKUP_S:
                made = await asyncio.to_thread(backups.make, context.database.url)
                log.info("the database was copied to %s", made)
        except Exception:
            log.exception("the database was not copied; it is tried again")
        await asyncio.sleep(TIDY_S)


async def watch_clock(context: Context) -> None:
    """Notice that the machine's clock was set, and protect open records from it."""
    while True:
        try:
            if machine_clock.was_set():
                await context.database.write(partial(_follow_clock, context))
                machine_clock.ClockFile(context.paths.clock).keep()
                await context.database.write(partial(retries.take_up, context))
                context.hub.changed(queue=True)
        except Exception:
            log.exception("following the machine's clock failed; it is tried again")
        await asyncio.sleep(WATCH_S)


def _follow_clock(context: Context, transaction: Transaction) -> None:
    machine_clock.follow(transaction)
    transaction.after_commit.append(context.runs.read_queue)


async def watch_disk(context: Context) -> None:
    """Notice a full disk of the workspace, note it on every active run, and keep a reserve while there is space."""
    store = context.files.store.local_root
    folders = [context.paths.server_dir, *([store] if store is not None and store.is_dir() else [])]
    while True:
        try:
            before = context.disk.full
            context.disk.see([Room.of(folder) for folder in folders])
            if bool(before) != bool(context.disk.full):
                log.warning("%s", context.disk.full or "the disk has room again")
                context.hub.scheduler.set()
            if context.disk.full:
                noted = await context.database.write(partial(_note_full_disk, context))
                context.disk.noted |= noted
            else:
                await asyncio.to_thread(Reserve(context.paths.reserve).keep, context.database.file)
        except Exception:
            log.exception("watching the disk failed; it is tried again")
        await asyncio.sleep(WATCH_S)


def _note_full_disk(context: Context, transaction: Transaction) -> set[str]:
    """Note on each active run, once, that some of its output may be missing; returns the notified runs."""
    runs = tables.runs
    rows = transaction.execute(select(runs.c.id, runs.c.notices).where(runs.c.status.in_(states.ACTIVE))).all()
    fresh = [row for row in rows if row.id not in context.disk.noted]
    text = disk.loss(context.disk.full)
    for row in fresh:
        RUN.set(transaction, row.id, notices=[*row.notices, text])
        add_note(transaction, row.id, "error", text)
    if fresh:
        transaction.after_commit.append(lambda: context.hub.changed(runs=[row.id for row in fresh]))
    return {row.id for row in fresh}


async def publish_streams(context: Context) -> None:
    """Copy the output of attempts to a remote store, while they run and after a server was killed."""
    while context.files.store.local_root is None:
        try:
            for run, attempt in await asyncio.to_thread(lambda: list(context.files.streams.attempts())):
                await asyncio.to_thread(context.files.streams.publish, context.files.store, run, attempt, False)
        except Exception:
            log.exception("the output of runs could not be copied to the workspace store; it is tried again")
        await asyncio.sleep(PUBLISH_S)
