"""Whether a database file is whole, which is looked at after a server that did not end by itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from muster import errors
from muster.server.database.faults import REPAIR


def problem(file: Path) -> str:
    """What is wrong with an SQLite database; empty where nothing is, or there is none yet."""
    if not file.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=rw", uri=True)) as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == ["ok"] else " ".join("; ".join(found).split())[:300]


def refuse_damaged(file: Path) -> None:
    """End here, in words that say what to do, rather than in the middle of a run."""
    if trouble := problem(file):
        raise errors.UserError(f"the workspace database {file} is damaged: {trouble}", REPAIR)
