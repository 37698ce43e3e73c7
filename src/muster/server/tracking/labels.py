"""Parameters and tags of runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Table, delete, select, update

from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import upsert

_NUMBER_MOST = 40
TOOLS_PREFIX = "mlflow."
"""Prefix of tags that tools set for themselves; people see only the others."""


def set_params(transaction: Transaction, run_id: str, attempt: int, params: Mapping[str, str]) -> None:
    """Record parameters; the same name again, also in a later attempt, replaces the value."""
    for name, value in params.items():
        row = {"run_id": run_id, "name": name, "value": value, "attempt": attempt, "number": number_in(value)}
        upsert(transaction, tables.params, row, newer="attempt")


def number_in(text: str) -> float | None:
    """The number that a text represents; None for other texts, and for NaN, which cannot be ordered."""
    if len(text) > _NUMBER_MOST:
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def set_tags(transaction: Transaction, run_id: str, tags: Mapping[str, str | None]) -> None:
    """Set tags of a run; None removes one."""
    table, runs = tables.run_tags, tables.runs
    own = {name: value for name, value in tags.items() if not name.startswith(TOOLS_PREFIX)}
    if own:
        known = transaction.execute(select(runs.c.tags).where(runs.c.id == run_id)).scalar() or {}
        kept = {name: value for name, value in {**known, **own}.items() if value is not None}
        transaction.execute(update(runs).where(runs.c.id == run_id).values(tags=kept))
    for name, value in tags.items():
        if name in own:
            continue
        if value is None:
            transaction.execute(delete(table).where(table.c.run_id == run_id, table.c.name == name))
        else:
            upsert(transaction, table, {"run_id": run_id, "name": name, "value": value})


def load_params(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """The parameters of runs, by run."""
    return _load(connection, tables.params, ids)


def load_tool_tags(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """The tags that tools set, by run."""
    return _load(connection, tables.run_tags, ids)


def _load(connection: Connection, table: Table, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    query = select(table.c.run_id, table.c.name, table.c.value).where(table.c.run_id.in_(ids)).order_by(table.c.name)
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for run_id, name, value in connection.execute(query):
        found[run_id][name] = value
    return found
