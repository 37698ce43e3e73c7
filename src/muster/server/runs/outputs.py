"""Outputs that nodes upload to a datastore: how the gang ended, and whose file gets which name."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import and_, insert, select

from muster.host.files import safe_path
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import node_rank_of
from muster.wire.node.requests import OutputClaim, OutputNames


def claim(transaction: Transaction, node: str, given: OutputClaim) -> OutputNames:
    """Once the gang has succeeded: the name of each file, or None where another node uploaded the same content.

    The first node to claim a name gets it, in whatever order the bytes arrive; other content by the same name goes
    under `node_N/`.
    """
    run, attempt, output = given.run, given.attempt, given.output
    node_rank = node_rank_of(transaction, run, attempt, node)
    outcome = _outcome(transaction, run, attempt)
    if outcome != "succeeded":
        return OutputNames(outcome, {})
    table = tables.output_files
    mine = and_(table.c.run_id == run, table.c.attempt == attempt, table.c.output == output)
    claimed = transaction.execute(select(table).where(mine).order_by(table.c.node_rank)).all()
    taken = {row.path: row for row in claimed}
    kept = {row.path: row.name for row in claimed if row.node_rank == node_rank}
    names: dict[str, str | None] = {}
    rows = []
    for file in given.files:
        path = safe_path(file.path)
        other = taken.get(path)
        if path in kept:
            names[path] = kept[path]
            continue
        same = other is not None and other.sha256 == file.sha256
        names[path] = None if same else f"node_{node_rank}/{path}" if other is not None else path
        key = {"run_id": run, "attempt": attempt, "output": output, "path": path, "node_rank": node_rank}
        rows.append({**key, "name": names[path], "size": file.size, "sha256": file.sha256})
    if rows:
        transaction.execute(insert(table), rows)
    return OutputNames(outcome, names)


def _outcome(transaction: Transaction, run: str, attempt: int) -> Literal["running", "succeeded", "failed"]:
    attempts, ranks = tables.attempts, tables.ranks
    where = and_(attempts.c.run_id == run, attempts.c.number == attempt)
    reason = transaction.execute(select(attempts.c.stop_reason).where(where)).scalar()
    if reason not in (None, "done"):
        return "failed"
    mine = and_(ranks.c.run_id == run, ranks.c.number == attempt, ranks.c.essential)
    found = transaction.execute(select(ranks.c.state, ranks.c.exit_code).where(mine)).all()
    if any(row.state == "ended" and row.exit_code != 0 for row in found):
        return "failed"
    return "succeeded" if found and all(row.state == "ended" for row in found) else "running"
