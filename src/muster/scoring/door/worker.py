"""The process that answers at the front door. One waits beside it, loaded, to take over at once when it dies."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import sys
from typing import Any

from muster.scoring.door.app import App
from muster.scoring.door.table import Table, parse
from muster.scoring.listening import bounded, most_connections

NO_LIBRARIES = 4
"""The exit code where the environment lacks what answers or asks by HTTP."""
_REPORT_S = 0.5
_TABLE_BYTES = 1 << 26


def main() -> int:
    listener, control = socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))
    try:
        uvicorn, aiohttp = importlib.import_module("uvicorn"), importlib.import_module("aiohttp")
        yarl = importlib.import_module("yarl")
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
        pass  # slower, and otherwise the same
    # Until it is its turn, which the first table says.
    first = _first_line(control)
    if not first:
        return 0
    asyncio.run(_serve(uvicorn, aiohttp, yarl, listener, control, parse(json.loads(first))))
    return 0


def _first_line(control: socket.socket) -> bytes:
    """Up to the first newline and no further: the rest is for the event loop."""
    found = b""
    while not found.endswith(b"\n"):
        ahead = control.recv(1 << 16, socket.MSG_PEEK)
        if not ahead:
            return b""
        found += control.recv(ahead.find(b"\n") + 1 or len(ahead))
    return found


async def _serve(
    uvicorn: Any, aiohttp: Any, yarl: Any, listener: socket.socket, control: socket.socket, table: Table
) -> None:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=2.0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        app = App(table, session, aiohttp, lambda text: yarl.URL(text, encoded=True))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", server_header=False,
            ws="none", http=bounded(), limit_concurrency=most_connections(),
            timeout_graceful_shutdown=25, timeout_keep_alive=75,
        )  # fmt: skip
        work = [asyncio.ensure_future(_follow(app, control)), asyncio.ensure_future(_report(app, control))]
        await uvicorn.Server(config).serve(sockets=[listener])
        for task in work:
            task.cancel()


async def _follow(app: App, control: socket.socket) -> None:
    """Take tables as they come; without whoever sends them this process ends."""
    reader, _ = await asyncio.open_connection(sock=control.dup(), limit=_TABLE_BYTES)
    while line := await reader.readline():
        app.update(parse(json.loads(line)))
        _tell(app, control)
    os._exit(0)


async def _report(app: App, control: socket.socket) -> None:
    while True:
        _tell(app, control)
        await asyncio.sleep(_REPORT_S)


def _tell(app: App, control: socket.socket) -> None:
    said = {"seen": app.table.version, "open": app.open_by_address(), "figures": app.figures()}
    try:
        control.send(json.dumps(said).encode() + b"\n", socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass  # nobody reads at the moment


if __name__ == "__main__":
    sys.exit(main())
