"""One thread that writes: queued writes share a commit, a failing one fails alone, and nothing ends the thread."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidRequestError, OperationalError

from muster import errors
from muster.defaults import DATABASE_AWAY_S
from muster.server.database.faults import explained, is_away, is_full

log = logging.getLogger("muster.server")

T = TypeVar("T")

_BATCH = 256
_AGAIN_S = 0.2


class Patience:
    """How long to wait for a database that does not answer."""

    def __init__(self) -> None:
        self._until = time.monotonic() + DATABASE_AWAY_S

    def wait(self) -> bool:
        """Wait a moment; returns whether to try once more."""
        if time.monotonic() > self._until:
            return False
        time.sleep(_AGAIN_S)
        return True


Memory = dict[type, object]


class Transaction:
    """What a write gets: the connection, and hooks for when it is durable."""

    def __init__(self, connection: Connection, memory: Memory | None = None) -> None:
        self.connection = connection
        self.memory: Memory = {} if memory is None else memory
        """State that rooms keep from one write to the next; nothing uncommitted may stay in it."""
        self.after_commit: list[Callable[[], None]] = []
        self.frees_nodes = False
        """Nodes became free, so something may start; that is decided before this commit."""

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        return self.connection.execute(statement, parameters)


@dataclass(frozen=True, eq=False)
class _Write:
    work: Callable[[Transaction], Any]
    future: Future[Any] = field(default_factory=Future)

    def begin(self) -> bool:
        """False when its caller has gone; from here on it cannot be cancelled."""
        return self.future.set_running_or_notify_cancel()


@dataclass
class _Batch:
    """The outcome of the writes of one commit."""

    done: list[tuple[_Write, Any]] = field(default_factory=list)
    failed: list[tuple[_Write, Exception]] = field(default_factory=list)
    hooks: list[Callable[[], None]] = field(default_factory=list)
    freed: bool = False


class Writer:
    """Runs writes one after another."""

    def __init__(self, engine: Engine) -> None:
        self.before_commit: Callable[[Transaction], None] | None = None
        """Called once for all writes of a commit, when one of them freed nodes."""
        self.after_abort: Callable[[], None] | None = None
        """Called when a commit failed: state remembered from its writes is invalid."""
        self.make_room: Callable[[], bool] | None = None
        """Called when a disk is full; if it returns true, the write is tried once more."""
        self.commits = 0
        """The number of commits: while it is the same, all that can be read is the same."""
        self._engine = engine
        self._memory: Memory = {}
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="database-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a write; the future is done when it is durable."""
        item = _Write(work)
        self._queue.put(item)
        if self._closed:
            self._refuse_rest()
        return item.future

    def close(self) -> None:
        """Write what is queued, and end."""
        self._queue.put(None)
        self._thread.join()
        self._closed = True
        self._refuse_rest()

    def _run(self) -> None:
        stop = False
        while not stop:
            batch, stop = self._next()
            begun = [item for item in batch if item.begin()]
            try:
                self._commit(begun)
            except BaseException as error:
                # Whatever it is: waiting callers must get it, and later ones must be served.
                log.exception("a write failed")
                for item in begun:
                    if not item.future.done():
                        item.future.set_exception(error)

    def _next(self) -> tuple[list[_Write], bool]:
        """The queued writes, and whether they are the last."""
        batch: list[_Write] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == _BATCH:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, items: list[_Write]) -> None:
        if not items:
            return
        patience = Patience()
        while True:
            try:
                batch = self._transact(items)
                break
            except Exception as error:
                if not (is_away(error) and patience.wait()):
                    self._abort(items, error)
                    return
                log.warning("the database does not answer; the write is tried again: %s", error)
                if self.after_abort is not None:
                    _call(self.after_abort)
        self.commits += 1
        for hook in batch.hooks:
            _call(hook)
        for item, result in batch.done:
            item.future.set_result(result)
        for item, reason in batch.failed:
            item.future.set_exception(reason)

    def _transact(self, items: list[_Write]) -> _Batch:
        batch = _Batch()
        with self._engine.begin() as connection:
            for item in items:
                self._apply(connection, item, batch, alone=len(items) == 1)
            if batch.freed and self.before_commit is not None:
                last = Transaction(connection, self._memory)
                self.before_commit(last)
                batch.hooks += last.after_commit
        return batch

    def _apply(self, connection: Connection, item: _Write, batch: _Batch, alone: bool) -> None:
        transaction = Transaction(connection, self._memory)
        try:
            if alone:
                result = item.work(transaction)
            else:
                with connection.begin_nested():
                    result = item.work(transaction)
        except Exception as error:
            if alone or _is_whole_rollback(error):
                raise
            batch.failed.append((item, explained(error)))
            return
        batch.done.append((item, result))
        batch.hooks += transaction.after_commit
        batch.freed = batch.freed or transaction.frees_nodes

    def _abort(self, items: list[_Write], error: Exception) -> None:
        """Nothing was committed: try each write alone, since one of them may be to blame."""
        if self.after_abort is not None:
            _call(self.after_abort)
        if len(items) == 1 and not (is_full(error) and self.make_room is not None and self.make_room()):
            items[0].future.set_exception(explained(error))
            return
        for item in items:
            self._commit([item])

    def _refuse_rest(self) -> None:
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return
            if item is not None and item.begin():
                item.future.set_exception(errors.ServerUnavailable("the server has closed its database"))


def _is_whole_rollback(error: Exception) -> bool:
    """Whether the database rolled back the whole transaction, including the writes before this one."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return isinstance(error, (OperationalError, InterfaceError, InvalidRequestError))


def _call(hook: Callable[[], None]) -> None:
    try:
        hook()
    except Exception:
        # The write is durable; its caller must not be told otherwise.
        log.exception("a hook after a commit failed")
