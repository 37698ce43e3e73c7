"""Facts that a verdict's advice can name: the job's files, its port, GPUs elsewhere, similar runs."""

from __future__ import annotations

import json
import re
from typing import Any

from sqlalchemy import select

from muster.diagnosis.similar import WINDOW_S, Earlier, similar_to
from muster.errors import MusterError
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.runs.attempt_record import AttemptRecord
from muster.wire import states
from muster.wire.codec import from_json
from muster.wire.environments import RunEnvironment
from muster.wire.verdicts import JobFacts, Similar, Verdict

_MOST_FILES = 2000
_MOST_RUNS = 300
_SHORT_DIGEST = 8
_PROVENANCE = "muster/provenance.json"
"""A file that clients add to a run that they submit: the commit, for example."""
_MOST_PROVENANCE_BYTES = 1 << 20


def facts_of(context: Context, transaction: Transaction, record: AttemptRecord) -> JobFacts:
    """All facts about a failed attempt except its evidence."""
    run = record.run
    environment = from_json(RunEnvironment, run.environment) if run.environment else None
    return JobFacts(
        files=_files(context, run.snapshot),
        # A single process gets no port: whichever it uses is its own choice.
        master_port=_port(record.attempt.plan) if run.spec.get("distribution") else 0,
        gpus=sum(len(node.gpus) for node in record.nodes),
        gpu_clusters=_with_gpus(transaction, run.compute),
        environment=environment.name if environment else "",
        packages=tuple(environment.lock or ()) if environment else (),
        completed=_completed(transaction, record, environment),
    )


def similar_runs(
    context: Context, transaction: Transaction, record: AttemptRecord, verdict: Verdict, now: float
) -> Similar | None:
    """Runs of the last week that failed in the same way."""
    runs = tables.runs
    rows = transaction.execute(
        select(runs.c.id, runs.c.ended_at, runs.c.verdict, runs.c.snapshot)
        .where(runs.c.status == states.FAILED, runs.c.ended_at >= now - WINDOW_S, runs.c.id != record.run.id)
        .order_by(runs.c.seq.desc())
        .limit(_MOST_RUNS)
    ).all()
    earlier = [
        Earlier(row.id, row.ended_at, from_json(Verdict, row.verdict), _digest(row.snapshot))
        for row in rows
        if row.verdict
    ]
    return similar_to(verdict, earlier, now, lambda run_id: _commit(context, run_id))


def _digest(snapshot: str | None) -> str:
    return f"code {snapshot[:_SHORT_DIGEST]}" if snapshot else ""


def _commit(context: Context, run_id: str) -> str:
    """The commit that a run's client recorded, if any; a remote store is not waited for."""
    store = context.files.store
    if store.local_root is None:
        return ""
    try:
        with store.open(f"runs/{run_id}/attempts/0/{_PROVENANCE}") as file:
            found = json.loads(file.read(_MOST_PROVENANCE_BYTES))
        commit, dirty = found["git"]["commit"], found["git"].get("dirty")
    except (MusterError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{8,64}", commit):
        return ""
    return f"commit {commit[:_SHORT_DIGEST]}" + (" and changes that were not committed" if dirty else "")


def _files(context: Context, snapshot: str | None) -> tuple[str, ...]:
    """Names of files in the job's code; a remote store is not waited for."""
    files = context.files
    if snapshot is None or files.store.local_root is None or not files.snapshots.has(snapshot):
        return ()
    return tuple(sorted(files.snapshots.files(snapshot))[:_MOST_FILES])


def _port(plan: Any) -> int | None:
    """The MASTER_PORT of a recorded plan."""
    ranks = [rank for node in (plan or {}).get("nodes", ()) for rank in node["ranks"]]
    given = next((rank["env"]["MASTER_PORT"] for rank in ranks if "MASTER_PORT" in rank.get("env", {})), "")
    return int(given) if str(given).isdigit() else None


def _with_gpus(transaction: Transaction, compute: str) -> tuple[str, ...]:
    rows = transaction.execute(select(tables.nodes.c.cluster, tables.nodes.c.gpus)).all()
    return tuple(sorted({row.cluster for row in rows if row.gpus and row.cluster != compute}))


def _completed(transaction: Transaction, record: AttemptRecord, environment: RunEnvironment | None) -> str:
    """An earlier run of the same code that completed, with the package versions in which this run differs."""
    run, runs = record.run, tables.runs
    if run.snapshot is None:
        return ""
    row = transaction.execute(
        select(runs.c.id, runs.c.environment, runs.c.compute)
        .where(runs.c.snapshot == run.snapshot, runs.c.status == states.COMPLETED, runs.c.id != run.id)
        .where(runs.c.spec["command"].as_string() == str(run.spec.get("command")))
        .order_by(runs.c.seq.desc())
        .limit(1)
    ).first()
    if row is None:
        return ""
    other = from_json(RunEnvironment, row.environment) if row.environment else None
    different = _different(other, environment)
    where = f" on {row.compute}" if row.compute != run.compute else ""
    return f"completed in run {row.id}{where}" + (f" with {', '.join(different)}" if different else "")


def _different(other: RunEnvironment | None, own: RunEnvironment | None) -> list[str]:
    """Packages that the other environment had in another version, the most relevant first."""
    theirs, ours = _versions(other), _versions(own)
    names = [name for name in theirs if name in ours and theirs[name] != ours[name]]
    names.sort(key=lambda name: (name not in ("torch", "numpy", "transformers", "tensorflow", "jax"), name))
    return [f"{name} {theirs[name]}" for name in names[:3]]


def _versions(environment: RunEnvironment | None) -> dict[str, str]:
    pairs = (line.partition("==") for line in (environment.lock or ())) if environment else ()
    return {name.strip().lower(): version.strip() for name, mark, version in pairs if mark}
