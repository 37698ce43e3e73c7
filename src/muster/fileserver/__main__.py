"""`python -m muster.fileserver`: keeps one file server on its node."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field

from muster.fileserver import folder, process
from muster.fileserver.filling import Fill
from muster.fileserver.folder import Impossible
from muster.fileserver.pace import Pace
from muster.fileserver.server import Server, Unreachable
from muster.storage.connectors.base import TransferError
from muster.storage.connectors.credentials import FreshTokens
from muster.storage.staging.model import Progress, Unwanted
from muster.wire.data.fileservers import FileServerOrders, FileServerReport, FillOrder, FillProgress

_LOOK_S = 0.2
_REPORT_S = 1.0
_PING_S = 5.0
_SILENT = 3
_BAD_STARTS = 5
_MEASURE_S = 30.0
_MEASURE_SHARE = 0.05
"""The share of the time that it may take: millions of files take long to go through."""
_AGAIN_S = 15.0
NOT_HERE = 3
"""The exit code if it cannot serve on this node."""


@dataclass
class Moving:
    """The fill that is under way, and those that have ended."""

    order: FillOrder | None = None
    progress: Progress = field(default_factory=Progress)
    pace: Pace = field(default_factory=Pace)
    ended: dict[int, FillProgress] = field(default_factory=dict)
    again_at: dict[int, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Keeper:
    """Holds the data, keeps the NFS server alive, and fills."""

    def __init__(self, server: Server, orders: FileServerOrders) -> None:
        self._server = server
        self._orders = orders
        process.check_host(orders.host, orders.clients)
        self._paths = folder.opened(orders.name, orders.owner, orders.folder)
        self._lock = folder.held(self._paths)
        self._program = process.chosen(self._paths)
        self._used = folder.used_bytes(self._paths)
        self._measure_at = time.monotonic() + _MEASURE_S
        self._port = 0
        self._process: process.Process | None = None
        self._restarts = -1
        self._moving = Moving()
        self._news = threading.Event()
        self.ending = False

    def work(self) -> int:
        """Run until it is to end; returns the exit code."""
        for work in (self._report, self._fill):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()
        bad, silent, next_ping = 0, 0, 0.0
        while not self.ending and not self._orders.removes:
            if self._process is None:
                bad = 0 if self._start() else bad + 1
                if bad >= _BAD_STARTS:
                    return 1
                silent, next_ping = 0, time.monotonic() + _PING_S
            elif (code := self._process.exit_code()) is not None:
                _say(f"the NFS server ended with {code}; another one is started")
                self._process = None
            elif time.monotonic() >= next_ping:
                next_ping = time.monotonic() + _PING_S
                silent = 0 if self._process.answers() else silent + 1
                if silent >= _SILENT:
                    _say(f"the NFS server has not answered {silent} times; another one is started")
                    self._process.end()
                    self._process = None
            time.sleep(_LOOK_S)
        self._end()
        return 0

    def _start(self) -> bool:
        orders = self._orders
        self._port = process.free_port(orders.host, self._port or orders.port)
        export = process.Export(orders.name, orders.host, self._port, orders.clients)
        started = process.Process(self._program.command(self._paths, export), self._paths, export)
        if not started.wait_ready():
            started.end()
            lines = "; ".join(started.last_lines()) or "it wrote nothing"
            _say(f"the NFS server did not come up at {orders.host}:{self._port}: {lines}")
            return False
        self._process = started
        self._restarts += 1
        _say(
            f"/{orders.name} is served at {orders.host}:{self._port} (NFS v4, read-only, to {orders.clients}) by "
            f"{self._program.shown}"
        )
        self._news.set()
        return True

    def _end(self) -> None:
        self._moving.progress.stop.set()
        if self._process is not None:
            self._process.end()
            self._process = None
        if self._orders.removes:
            with self._moving.lock:
                folder.remove(self._paths)
            _say(f"{self._paths.root} and what it held is removed")

    # Reports to the server, and its orders

    def _report(self) -> None:
        while True:
            self._news.wait(_REPORT_S)
            self._news.clear()
            try:
                self._orders = self._server.report(self._said())
            except Unreachable:
                time.sleep(_REPORT_S)  # the last orders stay in force

    def _said(self) -> FileServerReport:
        if time.monotonic() > self._measure_at:
            self._measure()
        serving = self._process
        moving, now = self._moving, []
        if moving.order is not None:
            now.append(moving.pace.told(moving.order.id, moving.progress.report()))
        return FileServerReport(
            self._server.attempt,
            self._port if serving is not None and serving.exit_code() is None else None,
            str(self._paths.root),
            self._used,
            max(0, self._restarts),
            (*moving.ended.values(), *now),
        )

    def _measure(self) -> None:
        began = time.monotonic()
        self._used, now = folder.used_bytes(self._paths), time.monotonic()
        self._measure_at = now + max(_MEASURE_S, (now - began) / _MEASURE_SHARE)

    # Fills

    def _fill(self) -> None:
        """In a thread: one fill after the other, each retried as long as that may help."""
        moving = self._moving
        while True:
            wanted = [order for order in self._orders.fills if self._is_due(order)]
            moving.ended = {
                order.id: moving.ended[order.id] for order in self._orders.fills if order.id in moving.ended
            }
            if not wanted:
                time.sleep(_LOOK_S)
                continue
            with moving.lock:
                if self._orders.removes:
                    return
                moving.progress, moving.pace, moving.order = Progress(), Pace(), wanted[0]
                ended = self._filled(wanted[0])
                moving.order = None
                if ended is None:
                    return
                moving.ended[wanted[0].id] = ended
            self._measure()
            self._news.set()

    def _is_due(self, order: FillOrder) -> bool:
        ended = self._moving.ended.get(order.id)
        return ended is None or time.monotonic() >= self._moving.again_at.get(order.id, float("inf"))

    def _filled(self, order: FillOrder) -> FillProgress | None:
        """The result of a fill; None if it is no longer wanted."""
        progress = self._moving.progress
        self._moving.again_at.pop(order.id, None)
        try:
            access, address = self._server.source(order.id)

            def refresh(paths: list[str]) -> FreshTokens:
                fresh, _ = self._server.source(order.id)
                return FreshTokens(fresh.token, {entry.path: entry.token for entry in fresh.manifest or ()})

            fill = Fill(self._paths, order.source, order.to)
            found = fill.run(access, progress, lambda: self._orders.size_bytes, address, refresh)
        except Unwanted:
            return None
        except (TransferError, Unreachable, OSError) as error:
            final = getattr(error, "final", False)
            if not final:
                self._moving.again_at[order.id] = time.monotonic() + _AGAIN_S
            why = str(getattr(error, "message", error))
            _say(f"{order.source} could not be brought: {why}")
            again = "" if final else f"; it is tried again every {_AGAIN_S:g} s"
            done = progress.report()
            return FillProgress(
                order.id, "failed", done.done_bytes, done.total_bytes, done.done_files, done.total_files,
                why + again, getattr(error, "next", ""),
            )  # fmt: skip
        size = sum(item[0] for item in found.files.values())
        count = len(found.files)
        _say(f"{order.source} is there: {count:,} file{'s' if count > 1 else ''}, {size:,} bytes")
        return FillProgress(order.id, "filled", size, size, len(found.files), len(found.files))


def _say(text: str) -> None:
    print(text, flush=True)


def _first_orders(server: Server) -> FileServerOrders:
    said = ""
    while True:
        try:
            return server.report(FileServerReport(server.attempt))
        except Unreachable as error:
            if str(error) != said:
                said = str(error)
                _say(f"the workspace's server does not answer: {said}")
            time.sleep(0.5)


def main() -> int:
    os.umask(0o022)
    server = Server()
    keeper: Keeper | None = None

    def end(*_: object) -> None:
        if keeper is None:
            sys.exit(0)
        keeper.ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    orders = _first_orders(server)
    try:
        keeper = Keeper(server, orders)
    except Impossible as error:
        if orders.removes:
            return 0
        _say(f"error: {error}")
        server.report(FileServerReport(server.attempt, trouble=str(error)))
        return NOT_HERE
    return keeper.work()


if __name__ == "__main__":
    sys.exit(main())
