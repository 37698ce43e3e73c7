"""The database: one writer that groups commits, many readers, the schema brought up to date."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text

from muster import errors
from muster.server.database import tables

T = TypeVar("T")

SCHEMA_REVISION = "0002"
_NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p", "fuse.sshfs"}
_BATCH = 256
_OWNER_KEY = 0x6D757374


class Transaction:
    """What a write sees: the connection, and things to do once it is durable."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.after_commit: list[Callable[[], None]] = []
        self.frees_nodes = False
        """Something may start now; it is decided before this commit."""

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        return self.connection.execute(statement, parameters)


@dataclass(frozen=True, eq=False)
class _Write:
    work: Callable[[Transaction], Any]
    future: Future[Any] = field(default_factory=Future)


class Database:
    """Writes run one after another in a thread of their own; those that wait share a commit."""

    def __init__(self, url: str) -> None:
        self._engine = _open(url)
        self._owner = _own(self._engine)
        migrate(self._engine)
        self.before_commit: Callable[[Transaction], None] | None = None
        """Called once for all writes of a commit, when one of them freed nodes."""
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_loop, name="database-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a write; the future is done when it is on disk."""
        item = _Write(work)
        self._queue.put(item)
        return item.future

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.wrap_future(self.submit(work))

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self.read_now, work)

    def read_now(self, work: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection:
            return work(connection)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        if self._owner is not None:
            self._owner.close()
        self._engine.dispose()

    def _write_loop(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            stop = False
            while len(batch) < _BATCH:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    stop = True
                    break
                batch.append(item)
            self._commit(batch)
            if stop:
                return

    def _commit(self, batch: list[_Write]) -> None:
        done: list[tuple[_Write, Any]] = []
        hooks: list[Callable[[], None]] = []
        freed = False
        try:
            with self._engine.begin() as connection:
                for item in batch:
                    transaction = Transaction(connection)
                    try:
                        if len(batch) == 1:
                            result = item.work(transaction)
                        else:
                            with connection.begin_nested():
                                result = item.work(transaction)
                    except Exception as error:
                        if len(batch) == 1:
                            raise
                        item.future.set_exception(error)
                        continue
                    done.append((item, result))
                    hooks += transaction.after_commit
                    freed = freed or transaction.frees_nodes
                if freed and self.before_commit is not None:
                    last = Transaction(connection)
                    self.before_commit(last)
                    hooks += last.after_commit
        except Exception as error:
            for item in batch:
                if not item.future.done():
                    item.future.set_exception(error)
            return
        for hook in hooks:
            hook()
        for item, result in done:
            item.future.set_result(result)


def _open(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_size=8, max_overflow=8)
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": 30})
    path = Path(url.removeprefix("sqlite:///"))
    journal = "DELETE" if on_network_filesystem(path.parent) else "WAL"

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA journal_mode={journal}")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA cache_size=-8192")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _own(engine: Engine) -> Connection | None:
    """A shared database belongs to one server, wherever its workspace folder lies; a file has its own lock."""
    if engine.dialect.name != "postgresql":
        return None
    connection = engine.connect()
    if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _OWNER_KEY}).scalar():
        connection.close()
        engine.dispose()
        raise errors.Conflict(
            f"another server has the database {engine.url.render_as_string(hide_password=True)}",
            "Give each workspace a database of its own, or end the other server.",
        )
    connection.commit()
    return connection


def migrate(engine: Engine) -> None:
    """Bring the schema to this version: a new database gets the tables of today, an older one is migrated."""
    with engine.begin() as connection:
        if not inspect(connection).has_table(tables.versions.name):
            tables.metadata.create_all(connection)
            connection.execute(insert(tables.versions).values(version_num=SCHEMA_REVISION))
            return
        current = connection.execute(select(tables.versions.c.version_num)).scalar_one()
    if current == SCHEMA_REVISION:
        return
    if current > SCHEMA_REVISION:
        raise errors.ProtocolMismatch(
            f"the workspace database has schema {current}, newer than this Muster's {SCHEMA_REVISION}",
            "Upgrade Muster on this machine to the version that last used the workspace.",
        )
    # Imported only here: it takes 8 MB that a server would keep.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["engine"] = engine
    command.upgrade(config, "head")


def on_network_filesystem(folder: Path) -> bool:
    """Whether a folder lies on a filesystem where SQLite's WAL is not safe."""
    resolved = str(folder.resolve())
    best, kind = "", ""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return False
    for line in mounts:
        parts = line.split(" ")
        point = parts[1].replace("\\040", " ")
        if (resolved == point or resolved.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, parts[2]
    return kind in _NETWORK_FILESYSTEMS
