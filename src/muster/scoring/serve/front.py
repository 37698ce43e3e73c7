"""A replica as the front door of its endpoint: the only replica takes requests at the endpoint's own address."""

from __future__ import annotations

import asyncio
import hmac
import importlib
import os
import socket
from dataclasses import replace
from typing import Any, Callable, Optional, Tuple

from muster.scoring.door import handover
from muster.scoring.door.accepting import Acceptor
from muster.scoring.door.app import App, Here
from muster.scoring.door.handover import Closed, Hello, Line
from muster.scoring.door.table import Told, told
from muster.scoring.door.worker import REPORT_S, make_app, make_session, report_of

_ALONE_S = 60.0
"""How long it keeps using the last table after its front door is gone; a new front door asks for the listener."""
_IDLE_S = 3.0
"""After connections go to others, the time until unused ones are closed."""


class Front:
    """Waits for the endpoint's front door, takes its listener, and gives it back when asked to."""

    def __init__(self, uvicorn: Any, server: Any, replica: Callable[..., Any], port: int) -> None:
        self._uvicorn = uvicorn
        self._server = server
        self._replica = replica
        self._port = port
        self._key = os.environ.get("SERVE_KEY", "")
        self._line: Optional[Line] = None
        self._url = ""
        self._told: "asyncio.Queue[Tuple[Told, Optional[socket.socket]]]" = asyncio.Queue()
        self._session: Any = None
        self._app: Optional[App] = None
        self._acceptor: Optional[Acceptor] = None

    async def work(self) -> None:
        """Run until the replica ends."""
        waiting = self._listener()
        if waiting is None:
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(waiting.fileno(), self._welcome, waiting)
        reporting = asyncio.ensure_future(self._report())
        try:
            while True:
                await self._apply(*await self._told.get())
        finally:
            reporting.cancel()
            loop.remove_reader(waiting.fileno())
            waiting.close()
            if self._session is not None:
                await self._session.close()

    def _listener(self) -> Optional[socket.socket]:
        try:
            for name in ("aiohttp", "yarl"):
                importlib.import_module(name)
        except ImportError:
            # After a change aiohttp passes on the connections that stay; without it, the front door stays in between.
            return None
        return handover.wait_for_door(os.environ.get("MUSTER_RUN_ID", ""), self._port)

    def _welcome(self, waiting: socket.socket) -> None:
        try:
            connection, _ = waiting.accept()
        except OSError:
            return
        if not handover.is_own(connection):
            connection.close()
            return
        connection.setblocking(False)
        line = Line(connection)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read, line)

    def _read(self, line: Line) -> None:
        try:
            for text in line.receive():
                self._hear(line, text)
        except (Closed, ValueError, KeyError, OSError):
            self._part(line)

    def _hear(self, line: Line, text: bytes) -> None:
        if line is self._line:
            self._told.put_nowait((told(text), line.taken()))
            return
        said = Hello.parse(text)
        if not self._key or not hmac.compare_digest(said.key.encode(), self._key.encode()):
            raise Closed("a wrong key")
        if self._line is not None:
            self._part(self._line)
        self._line, self._url = line, said.url
        line.send(b"{}\n", self._acceptor.listener if self._acceptor is not None else None)

    def _part(self, line: Line) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(line.connection.fileno())
        line.close()
        if line is self._line:
            self._line = None
            loop.call_later(_ALONE_S, self._give_up)

    def _give_up(self) -> None:
        if self._line is None and self._acceptor is not None:
            self._leave()

    async def _apply(self, given: Told, listener: Optional[socket.socket]) -> None:
        if self._app is None or self._acceptor is None:
            here = Here(self._url, self._key, self._replica)
            self._session = make_session()
            self._app = make_app(given.table, self._session, here)
            self._acceptor = Acceptor(self._uvicorn, self._app, self._server)
        self._app.update(given.table)
        await self._acceptor.follow(self._app.table)
        if not given.accepts:
            self._leave()
        elif listener is not None:
            self._app.is_leaving = False
            await self._acceptor.start(listener, self._app.table)
        self._tell()

    def _leave(self) -> None:
        """Others take the connections now; the open ones end with their next answer, or unused."""
        if self._app is None or self._acceptor is None or self._app.is_leaving:
            return
        self._app.is_leaving = True
        self._acceptor.stop()
        asyncio.get_running_loop().call_later(_IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        if self._app is not None and self._acceptor is not None and self._app.is_leaving:
            for connection in self._acceptor.connections:
                connection.shutdown()

    async def _report(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(REPORT_S)

    def _tell(self) -> None:
        if self._line is None or self._app is None or self._acceptor is None:
            return
        report = report_of(self._app)
        if self._app.is_leaving:
            # A client with a connection may ask once more.
            left = len(self._acceptor.connections)
            report = replace(report, open={**report.open, self._url: report.open.get(self._url, 0) + left})
        self._line.send_if_read(report.line())
