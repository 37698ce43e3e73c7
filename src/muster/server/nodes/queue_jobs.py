"""The state of each attempt's job in its cluster's queue, and what the job used once it is over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from muster.engines.base import Cluster
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import ATTEMPT
from muster.server.nodes.clusters import cluster_of
from muster.server.nodes.state import EndedJob
from muster.wire.codec import from_json, to_json
from muster.wire.queue_jobs import JobUsage, QueueJob

log = logging.getLogger("muster.server")

Key = tuple[str, int]

ASK_S = 5.0
"""How often the accounting is queried."""
_PATIENCE_S = 300.0
"""How long the accounting may take to record a job."""
_LATE = f"the accounting had no record of it within {_PATIENCE_S / 60:g} minutes of its end"


def keep(context: Context, found: Mapping[Key, QueueJob]) -> None:
    """Note what queues report of open attempts; what lasts is recorded, with one write for all."""
    known = context.nodes.jobs
    changed = {key: job for key, job in found.items() if key not in known or _lasting(known[key]) != _lasting(job)}
    known |= found
    if changed:
        context.database.submit(partial(_record, jobs=changed)).result()


def of_attempt(context: Context, row: Any) -> QueueJob | None:
    """The latest that its queue reported of an attempt."""
    live = context.nodes.jobs.get((row.run_id, row.number))
    return live or (None if row.queue_job is None else from_json(QueueJob, row.queue_job))


def end(context: Context, transaction: Transaction, cluster: Cluster, key: Key, reported: QueueJob | None) -> None:
    """An attempt gives its job back: what is known of it is kept, and what it used is queried later."""
    known = context.nodes.jobs.pop(key, None) or _recorded(transaction.connection, key)
    # Of a queue that does not answer only the job's number is known.
    is_bare = reported is not None and not reported.nodes and known is not None and known.id == reported.id
    job = known if reported is None or is_bare else reported
    if job is None:
        return
    # The job ends now: its last reported state is out of date.
    job = replace(job, state="", reason="", starts_at=None)
    _record(transaction, {key: job})
    same = [other for other, item in context.nodes.ended_jobs.items() if item.job.id == job.id]
    for other in same:
        # The same job went on as the next attempt, and is accounted once.
        del context.nodes.ended_jobs[other]
    context.nodes.ended_jobs[key] = EndedJob(cluster, job, time.monotonic())


async def watch(context: Context) -> None:
    """Look up the usage of ended jobs as their accounting records it."""
    try:
        await _find_ended(context)
    except Exception:
        log.exception("jobs that ended before the server started could not be looked up")
    while True:
        await asyncio.sleep(ASK_S)
        try:
            await account(context)
        except Exception:
            log.exception("the usage of jobs could not be queried; it is tried again")


async def account(context: Context) -> None:
    """Query the usage of ended jobs; what is found is recorded with their attempts."""
    clusters = {item.cluster.name: item.cluster for item in context.nodes.ended_jobs.values()}
    for name, cluster in sorted(clusters.items()):
        ended = {key: item for key, item in context.nodes.ended_jobs.items() if item.cluster.name == name}
        queue = context.nodes.engines.queue(cluster.engine)
        jobs = sorted({item.job.id for item in ended.values()})
        reported = await asyncio.to_thread(queue.usage, cluster, jobs) if queue is not None else ""
        settled = _with_usage(ended, reported, time.monotonic())
        if settled and reported != "":
            await context.database.write(partial(_record, jobs=settled))
            for run_id, _ in settled:
                context.runs.unrecorded.add(run_id)
        for key in settled:
            context.nodes.ended_jobs.pop(key, None)


async def _find_ended(context: Context) -> None:
    """Take up jobs that ended while the server was down, or just before."""
    now = time.monotonic()
    for key, cluster, job in await context.database.read(_without_usage):
        context.nodes.ended_jobs.setdefault(key, EndedJob(cluster, job, now))


def _with_usage(
    ended: Mapping[Key, EndedJob], reported: Mapping[str, JobUsage] | str, now: float
) -> dict[Key, QueueJob]:
    """The jobs whose usage is known by now, or will never be, with the reason."""
    if isinstance(reported, str):
        return {key: replace(item.job, usage_note=reported) for key, item in ended.items()}
    found = {
        key: replace(item.job, usage=reported[item.job.id]) for key, item in ended.items() if item.job.id in reported
    }
    late = {key: item for key, item in ended.items() if key not in found and now - item.since > _PATIENCE_S}
    return found | {key: replace(item.job, usage_note=_LATE) for key, item in late.items()}


def _without_usage(connection: Connection) -> list[tuple[Key, Cluster, QueueJob]]:
    attempts, runs, clusters = tables.attempts, tables.runs, tables.clusters
    query = (
        select(*attempts.c["run_id", "number", "queue_job"], *clusters.c["name", "engine", "options"])
        .join(runs, runs.c.id == attempts.c.run_id)
        .join(clusters, clusters.c.name == runs.c.compute)
        .where(attempts.c.job_id.is_not(None), attempts.c.ended_at > clock.now() - _PATIENCE_S)
    )
    found: dict[str, tuple[Key, Cluster, QueueJob]] = {}
    for row in sorted(connection.execute(query), key=lambda row: (row.run_id, row.number)):
        job = None if row.queue_job is None else from_json(QueueJob, row.queue_job)
        if job is not None and job.usage is None and not job.usage_note:
            found[job.id] = ((row.run_id, row.number), cluster_of(row), job)
    return list(found.values())


def _record(transaction: Transaction, jobs: Mapping[Key, QueueJob]) -> None:
    for key, job in jobs.items():
        ATTEMPT.set(transaction, *key, job_id=job.id, queue_job=to_json(job))


def _recorded(connection: Connection, key: Key) -> QueueJob | None:
    attempts = tables.attempts
    query = select(attempts.c.queue_job).where(attempts.c.run_id == key[0], attempts.c.number == key[1])
    found = connection.execute(query).scalar()
    return None if found is None else from_json(QueueJob, found)


def _lasting(job: QueueJob) -> QueueJob:
    """The job without what changes while it waits."""
    return replace(job, reason="", starts_at=None)
