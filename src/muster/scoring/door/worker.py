"""The process that answers at the front door. A second one waits, loaded, to take over at once when it dies."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import sys
from typing import Any

from muster.scoring.door.accepting import Acceptor, options
from muster.scoring.door.app import App
from muster.scoring.door.said import Said
from muster.scoring.door.table import Table, Told, told

NO_LIBRARIES = 4
"""The exit code if the environment lacks the libraries for an HTTP server or client."""
REPORT_S = 0.5
_TABLE_BYTES = 1 << 26


def main() -> int:
    listener, control = socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))
    try:
        uvicorn = importlib.import_module("uvicorn")
        for name in ("aiohttp", "yarl"):
            importlib.import_module(name)
    except ImportError as error:
        print(
            "muster: the front door of an endpoint needs `pip install uvicorn httptools uvloop aiohttp` ({})".format(
                error
            ),
            file=sys.stderr,
        )
        return NO_LIBRARIES
    try:
        importlib.import_module("uvloop").install()
    except ImportError:
        pass  # slower, but otherwise the same
    # Wait for the first table: it comes when this process takes over.
    first = _first_line(control)
    if not first:
        return 0
    asyncio.run(_serve(uvicorn, listener, control, told(first)))
    return 0


def _first_line(control: socket.socket) -> bytes:
    """Read up to the first newline and no further: the rest is for the event loop."""
    found = b""
    while not found.endswith(b"\n"):
        ahead = control.recv(1 << 16, socket.MSG_PEEK)
        if not ahead:
            return b""
        found += control.recv(ahead.find(b"\n") + 1 or len(ahead))
    return found


def make_session() -> Any:
    """The HTTP client for replicas: an aiohttp session, inside an event loop."""
    aiohttp = importlib.import_module("aiohttp")
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0)
    return aiohttp.ClientSession(connector=connector, auto_decompress=False)


def make_app(table: Table, session: Any, here: Any = None) -> App:
    """The application for a table, as it was sent."""
    url = importlib.import_module("yarl").URL
    library = importlib.import_module("aiohttp")
    return App(table, session, library, lambda text: url(text, encoded=True), here)


async def _serve(uvicorn: Any, listener: socket.socket, control: socket.socket, first: Told) -> None:
    async with make_session() as session:
        app = make_app(first.table, session)
        server = uvicorn.Server(uvicorn.Config(app, **options()))
        acceptor = Acceptor(uvicorn, app, server)
        work = [
            asyncio.ensure_future(_follow(app, acceptor, listener, control, first)),
            asyncio.ensure_future(_report(app, control)),
        ]
        # It has no listener of its own: the acceptor takes connections when asked to.
        await server.serve(sockets=[])
        for task in work:
            task.cancel()


async def _apply(app: App, acceptor: Acceptor, listener: socket.socket, given: Told) -> None:
    app.update(given.table)
    app.is_leaving = not given.accepts
    await acceptor.follow(app.table)
    if given.accepts and acceptor.listener is None:
        await acceptor.start(listener.dup(), app.table)
    elif not given.accepts:
        acceptor.stop()


async def _follow(app: App, acceptor: Acceptor, listener: socket.socket, control: socket.socket, first: Told) -> None:
    """Follow new tables as they come; when their sender is gone this process ends."""
    await _apply(app, acceptor, listener, first)
    reader, _ = await asyncio.open_connection(sock=control.dup(), limit=_TABLE_BYTES)
    while line := await reader.readline():
        await _apply(app, acceptor, listener, told(line))
        _tell(app, control)
    os._exit(0)


async def _report(app: App, control: socket.socket) -> None:
    while True:
        _tell(app, control)
        await asyncio.sleep(REPORT_S)


def report_of(app: App) -> Said:
    """The report to the sender of the tables."""
    return Said(app.table.version, app.open_by_address(), tuple(app.figures()))


def _tell(app: App, control: socket.socket) -> None:
    try:
        control.send(report_of(app).line(), socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass  # nobody reads at the moment


if __name__ == "__main__":
    sys.exit(main())
