"""Whether a database file is whole, which is looked at after a server that did not end by itself."""

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
    """What is wrong with an SQLite database; empty where nothing is, or there is none yet."""
    if not file.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=rw", uri=True)) as connection:
            return _told(connection.execute(_CHECK).fetchall())
    except sqlite3.DatabaseError as error:
        return str(error)


def refuse_damaged(database: Database) -> None:
    """End here, in words that say what to do, rather than in the middle of a run.

    On the database's own connection: the last one to close would give up the room that its log has on a full disk.
    """
    if database.file is None:
        return
    try:
        trouble = database.read_now(lambda connection: _told(connection.execute(text(_CHECK)).all()))
    except errors.MusterError as error:
        trouble = error.message
    if trouble:
        raise errors.UserError(f"the workspace database {database.file} is damaged: {trouble}", REPAIR)


def _told(rows: Sequence[Sequence[object]]) -> str:
    found = [str(row[0]) for row in rows]
    return "" if found == ["ok"] else " ".join("; ".join(found).split())[:300]
