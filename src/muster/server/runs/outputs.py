"""Outputs that nodes bring to a datastore: how the gang ended, and whose file gets which name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, insert, select

from muster import errors
from muster.host.files import safe_path
from muster.server.database import tables
from muster.server.database.connection import Transaction

RUNNING, SUCCEEDED, FAILED = "running", "succeeded", "failed"


def claim(
    transaction: Transaction, run: str, attempt: int, node: str, output: str, files: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Once the gang has succeeded: the name of each file, or None where another node brought the same content.

    The first node to claim a name has it, whatever the order in which their bytes arrive; another content by the same
    name lies under `node_N/`.
    """
    node_rank = _node_rank(transaction, run, attempt, node)
    outcome = _outcome(transaction, run, attempt)
    if outcome != SUCCEEDED:
        return {"outcome": outcome, "names": {}}
    table = tables.output_files
    mine = and_(table.c.run_id == run, table.c.attempt == attempt, table.c.output == output)
    taken = {row.path: row for row in transaction.execute(select(table).where(mine).order_by(table.c.node_rank))}
    kept = {
        row.path: row.name for row in transaction.execute(select(table).where(mine, table.c.node_rank == node_rank))
    }
    names: dict[str, str | None] = {}
    rows = []
    for file in files:
        path = safe_path(str(file["path"]))
        other = taken.get(path)
        if path in kept:
            names[path] = kept[path]
            continue
        same = other is not None and other.sha256 == file["sha256"]
        names[path] = None if same else f"node_{node_rank}/{path}" if other is not None else path
        key = {"run_id": run, "attempt": attempt, "output": output, "path": path, "node_rank": node_rank}
        rows.append({**key, "name": names[path], "size": int(file["size"]), "sha256": str(file["sha256"])})
    if rows:
        transaction.execute(insert(table), rows)
    return {"outcome": outcome, "names": names}


def _node_rank(transaction: Transaction, run: str, attempt: int, node: str) -> int:
    placements = tables.placements
    row = transaction.execute(
        select(placements.c.node_rank).where(
            placements.c.run_id == run, placements.c.number == attempt, placements.c.node == node
        )
    ).first()
    if row is None:
        raise errors.NotFound(f"attempt {attempt} of {run} is not on {node}")
    return int(row.node_rank)


def _outcome(transaction: Transaction, run: str, attempt: int) -> str:
    attempts, ranks = tables.attempts, tables.ranks
    where = and_(attempts.c.run_id == run, attempts.c.number == attempt)
    reason = transaction.execute(select(attempts.c.stop_reason).where(where)).scalar()
    if reason not in (None, "done"):
        return FAILED
    mine = and_(ranks.c.run_id == run, ranks.c.number == attempt, ranks.c.essential)
    found = transaction.execute(select(ranks.c.state, ranks.c.exit_code).where(mine)).all()
    if any(row.state == "ended" and row.exit_code != 0 for row in found):
        return FAILED
    return SUCCEEDED if found and all(row.state == "ended" for row in found) else RUNNING
