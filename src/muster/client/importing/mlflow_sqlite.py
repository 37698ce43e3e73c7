"""MLflow's store in an SQLite file (`mlflow.db`), the default of newer versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from muster.client.importing.mlflow_stores import Point, StoredRun, names_below
from muster.errors import UserError

_RUNS = """
SELECT r.run_uuid, e.name AS experiment, r.name, r.user_id, r.status, r.start_time, r.end_time, r.artifact_uri
FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id
WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active' ORDER BY r.start_time, r.run_uuid
"""
_HISTORY = "SELECT value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? AND key = ? ORDER BY step, timestamp"


class SqliteStore:
    """An SQLite file, opened read-only."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            with closing(self._open()) as database:
                database.execute(_RUNS + " LIMIT 1").fetchall()
        except sqlite3.Error as error:
            hint = "Give the database of an MLflow store (mlflow.db), an mlruns folder, or a server's address."
            raise UserError(f"{file} holds no runs of MLflow: {error}", hint) from error

    def runs(self) -> Iterator[StoredRun]:
        with closing(self._open()) as database:
            for row in database.execute(_RUNS).fetchall():
                yield StoredRun(
                    row["run_uuid"],
                    row["experiment"],
                    row["name"] or "",
                    row["user_id"] or "",
                    row["status"] or "FINISHED",
                    int(row["start_time"] or 0),
                    None if row["end_time"] is None else int(row["end_time"]),
                    _pairs(database, "params", row["run_uuid"]),
                    _pairs(database, "tags", row["run_uuid"]),
                    _metrics(database, row["run_uuid"]),
                    self._artifacts_of(row["artifact_uri"] or ""),
                )

    def history(self, run: StoredRun, metric: str) -> Iterator[Point]:
        with closing(self._open()) as database:
            for row in database.execute(_HISTORY, (run.id, metric)):
                value = "NaN" if row["is_nan"] else row["value"]
                yield Point(metric, value, int(row["timestamp"]), int(row["step"]))

    def artifacts(self, run: StoredRun) -> Iterator[str]:
        if run.artifact_root:
            yield from names_below(Path(run.artifact_root))

    @contextmanager
    def open(self, run: StoredRun, path: str) -> Iterator[IO[bytes]]:
        with (Path(run.artifact_root) / path).open("rb") as stream:
            yield stream

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(f"{self._file.resolve().as_uri()}?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        return database

    def _artifacts_of(self, uri: str) -> str:
        """The folder with a run's files; empty where they are not on this machine."""
        parts = urlsplit(uri)
        if parts.scheme not in ("", "file"):
            return ""
        # A relative path counts from where MLflow was started, which is mostly next to the database.
        return str(self._file.parent / unquote(parts.path))


def _pairs(database: sqlite3.Connection, table: str, run: str) -> dict[str, str]:
    rows = database.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", (run,))
    return {row["key"]: row["value"] or "" for row in rows}


def _metrics(database: sqlite3.Connection, run: str) -> tuple[str, ...]:
    rows = database.execute("SELECT DISTINCT key FROM metrics WHERE run_uuid = ? ORDER BY key", (run,))
    return tuple(row["key"] for row in rows)
