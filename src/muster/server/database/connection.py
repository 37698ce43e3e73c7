"""The database: one writer that groups commits, many readers, schema migrations."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from muster import errors
from muster.server.database import tables
from muster.server.database.faults import explained, is_away
from muster.server.database.json_text import JSON_TEXT
from muster.server.database.writer import Patience, Transaction, Writer

__all__ = ["Database", "Transaction"]

T = TypeVar("T")

SCHEMA_REVISION = "0030"
_NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "afs", "9p", "fuse.sshfs"}
_OWNER_KEY = 0x6D757374
_OWNER_S = 2.0


class Database:
    """Writes run one after another in a thread of their own; queued writes share a commit."""

    def __init__(self, url: str) -> None:
        self._engine = connect(url)
        try:
            self._owner = _with_patience(lambda: _own(self._engine))
        except errors.MusterError:
            self._engine.dispose()
            raise
        migrate(self._engine)
        self.writer = Writer(self._engine)
        self._owning = threading.Lock()
        if self._owner is not None:
            event.listen(self._engine, "connect", self._own_again)
        self.witness: Callable[[Callable[[Transaction], Any]], Callable[[Transaction], Any]] | None = None
        """Wraps a request's writes so that they include its audit entry."""

    @property
    def url(self) -> str:
        return self._engine.url.render_as_string(hide_password=False)

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a write; the future is done when it is durable."""
        return self.writer.submit(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.wrap_future(self.submit(self.witness(work) if self.witness is not None else work))

    @property
    def file(self) -> Path | None:
        """The SQLite file; None for a database server."""
        return sqlite_file(self.url)

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self.read_now, work)

    def read_now(self, work: Callable[[Connection], T]) -> T:
        return _with_patience(lambda: self._read(work))

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection:
            return work(connection)

    def _own_again(self, _connection: object, _record: object) -> None:
        """Take the lock again with every new connection: the one that held it may have been lost too."""
        if not self._owning.acquire(blocking=False):
            return
        try:
            if self._owner is None or not _answers(self._owner):
                self._owner = None
                self._owner = _own(self._engine)
        finally:
            self._owning.release()

    def close(self) -> None:
        self.writer.close()
        if self._owner is not None:
            self._owner.close()
        self._engine.dispose()


def _with_patience(work: Callable[[], T]) -> T:
    """Run `work`, with retries while a database server does not answer."""
    patience = Patience()
    while True:
        try:
            return work()
        except DBAPIError as error:
            if not (is_away(error) and patience.wait()):
                raise explained(error) from error


def _answers(connection: Connection) -> bool:
    try:
        connection.execute(text("SELECT 1"))
        connection.commit()
    except SQLAlchemyError:
        with suppress(SQLAlchemyError):
            connection.close()
        return False
    return True


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for another kind."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None


def connect(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_size=8, max_overflow=8, pool_pre_ping=True, **JSON_TEXT)
    engine = create_engine(url, **JSON_TEXT, connect_args={"check_same_thread": False, "timeout": 30})
    path = sqlite_file(url)
    journal = "DELETE" if path is not None and on_network_filesystem(path.parent) else "WAL"

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
    """Lock a shared database for this server, wherever its workspace folder is; a file has its own lock."""
    if engine.dialect.name != "postgresql":
        return None
    connection, deadline = engine.connect(), time.monotonic() + _OWNER_S
    while not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _OWNER_KEY}).scalar():
        if time.monotonic() < deadline:
            # A connection that was lost holds it until the database has noticed.
            time.sleep(0.1)
            continue
        connection.close()
        raise errors.Conflict(
            f"another server has the database {engine.url.render_as_string(hide_password=True)}",
            "Give each workspace its own database, or stop the other server.",
        )
    connection.commit()
    return connection


def migrate(engine: Engine) -> None:
    """Bring the schema to this version: a new database gets the current tables, an older one is migrated."""
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
    # Imported only here: it takes 8 MB that the server would hold forever.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["engine"] = engine
    command.upgrade(config, "head")


def on_network_filesystem(folder: Path) -> bool:
    """Whether a folder is on a filesystem where SQLite's WAL is not safe."""
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
