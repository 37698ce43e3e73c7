"""Whether a database file is intact; checked after a server that did not shut down cleanly."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from muster import errors
from muster.server.database.connection import Database
from muster.server.database.faults import REPAIR

_CHECK = "PRAGMA quick_check(3)"


def problem(file: Path) -> str:
    """What is wrong with an SQLite database; empty: nothing, or there is none yet."""
    if not file.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=rw", uri=True)) as connection:
            return _describe(connection.execute(_CHECK).fetchall())
    except sqlite3.DatabaseError as error:
        return str(error)


def refuse_damaged(database: Database) -> None:
    """Fail at the start with advice, rather than later in the middle of a run.

    On the database's own connection: closing the last one would give up the space of its log on a full disk.
    """
    if database.file is None:
        return
    try:
        trouble = database.read_now(lambda connection: _describe(connection.execute(text(_CHECK)).all()))
    except errors.MusterError as error:
        trouble = error.message
    if trouble:
        raise errors.UserError(f"the workspace database {database.file} is damaged: {trouble}", REPAIR)


def _describe(rows: Sequence[Sequence[object]]) -> str:
    found = [str(row[0]) for row in rows]
    return "" if found == ["ok"] else " ".join("; ".join(found).split())[:300]
