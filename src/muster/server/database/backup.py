"""Copies of the workspace database: always an SQLite file, whatever kind of database it came from or goes into."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, func, insert, select, text

from muster import errors
from muster.host.files import PRIVATE, UNFINISHED
from muster.server.database import tables
from muster.server.database.connection import SCHEMA_REVISION, connect, migrate, sqlite_file
from muster.server.database.integrity import problem

_ROWS = 1000
_SIDES = ("", "-wal", "-shm", "-journal")
"""The files of one SQLite database."""


def copy_to_file(url: str, target: Path) -> None:
    """A consistent copy of the database, even while a server uses it."""
    part = target.with_name(f".{target.name}{UNFINISHED}{time.monotonic_ns()}")
    source = sqlite_file(url)
    try:
        if source is not None:
            _copy_pages(source, part)
        else:
            _copy_out(url, part)
        part.chmod(PRIVATE)
        part.replace(target)
    finally:
        for side in _SIDES:
            part.with_name(part.name + side).unlink(missing_ok=True)


def put_back(copy: Path, url: str, aside: Path) -> None:
    """Restore the database from a copy; the previous file is kept in the folder `aside`."""
    if trouble := problem(copy):
        raise errors.UserError(f"the copy {copy} is damaged: {trouble}", "Take another one.")
    target = sqlite_file(url)
    if target is not None:
        move_aside(target, aside)
        shutil.copyfile(copy, target)
    else:
        _copy_in(copy, url)


def move_aside(file: Path, aside: Path) -> None:
    """Move an SQLite database, with its other files, to another folder."""
    for side in _SIDES:
        path = file.with_name(file.name + side)
        if path.exists():
            aside.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.replace(aside / path.name)


class AutomaticBackups:
    """The last few backups, made by the server itself."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def newest_first(self) -> list[Path]:
        return sorted(self._folder.glob("muster-*.db"), reverse=True)

    def age_s(self) -> float:
        """The age of the newest; infinite where there is none."""
        newest = next(iter(self.newest_first()), None)
        return max(0.0, time.time() - newest.stat().st_mtime) if newest is not None else float("inf")

    def make(self, url: str) -> Path:
        """Make one more, and remove the oldest."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = self._folder / f"muster-{time.strftime('%Y%m%d-%H%M%S')}.db"
        copy_to_file(url, target)
        for old in self.newest_first()[self._keep :]:
            old.unlink(missing_ok=True)
        return target

    def newest_whole(self) -> Path | None:
        """The newest that is not damaged."""
        return next((path for path in self.newest_first() if not problem(path)), None)


def _copy_pages(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(f"file:{source}?mode=rw", uri=True)) as inner, closing(sqlite3.connect(target)) as out:
        # In one step: a snapshot, which blocks no writer.
        inner.backup(out)
        out.execute("PRAGMA journal_mode=DELETE")


def _copy_out(url: str, target: Path) -> None:
    with _engine(url) as source, _engine(f"sqlite:///{target}") as made:
        snapshot = source.execution_options(isolation_level="REPEATABLE READ")
        with snapshot.connect() as inner, made.begin() as out:
            revision = inner.execute(select(tables.versions.c.version_num)).scalar_one()
            if revision != SCHEMA_REVISION:
                raise errors.ProtocolMismatch(
                    f"the database has schema {revision}, this Muster {SCHEMA_REVISION}",
                    "Start its server with this version once (`muster up`), which brings it up to date.",
                )
            tables.metadata.create_all(out)
            _copy_rows(inner, out)


def _copy_in(copy: Path, url: str) -> None:
    work = copy.with_name(f".{copy.name}{UNFINISHED}{time.monotonic_ns()}")
    shutil.copyfile(copy, work)
    try:
        with _engine(f"sqlite:///{work}") as source, _engine(url) as target:
            migrate(source)
            with source.connect() as inner, target.begin() as out:
                tables.metadata.drop_all(out)
                tables.metadata.create_all(out)
                _copy_rows(inner, out)
                count_on(out)
    finally:
        for side in _SIDES:
            work.with_name(work.name + side).unlink(missing_ok=True)


def _copy_rows(inner: Connection, out: Connection) -> None:
    for table in tables.metadata.sorted_tables:
        found = inner.execution_options(yield_per=_ROWS).execute(select(table))
        for rows in found.partitions(_ROWS):
            out.execute(insert(table), [dict(row._mapping) for row in rows])


def count_on(out: Connection) -> None:
    """Move PostgreSQL's sequences on: rows inserted with explicit ids do not advance them."""
    if out.dialect.name != "postgresql":
        return
    for table in tables.metadata.sorted_tables:
        for column in table.primary_key:
            if column.autoincrement is True:
                last = out.execute(select(func.max(column))).scalar()
                if last is not None:
                    sequence = {"table": table.name, "column": column.name, "last": last}
                    out.execute(text("SELECT setval(pg_get_serial_sequence(:table, :column), :last)"), sequence)


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = connect(url) if not url.startswith("sqlite") else create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()
