"""`muster forward`: a port of a rank on this machine."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from functools import partial
from typing import Annotated

from muster.cli.commands.inside.entering import once_started
from muster.cli.console import notice, say
from muster.cli.options import Run, argument, option
from muster.client.api import Client
from muster.client.connect import connect
from muster.client.inside.ports import Forwarded, parse_ports, services_of
from muster.client.inside.tunnels import Session
from muster.errors import MusterError, UserError
from muster.host import frames
from muster.host.streams import SocketEnd
from muster.wire.tunnels import TunnelTarget

_MOST = 100
"""Concurrent connections; more are queued."""


def forward(
    run: Run,
    ports: Annotated[list[str], argument("PORT|LOCAL:PORT|NAME", "The rank's port, or the name of a service.")],
    rank: Annotated[int | None, option("N", "Which rank (default: 0).", min=0, show_default=False)] = None,
) -> None:
    """Forward ports of a rank to 127.0.0.1 on this machine, until Ctrl-C.

    Nothing listens on the node, and its firewall does not matter: its agent connects to the server. LOCAL is the
    port here; 0 takes a free one. Without LOCAL, it is the same number as there, or a free one.

    \b
    Examples:
      muster forward @latest 8888
      muster forward @latest 9000:8888 --rank 1
      muster forward @latest 6006 8888
    """
    client = connect()
    view = client.run(run)
    services = services_of(view)
    wanted = [parse_ports(text, services) for text in ports]
    # Refused now, rather than when the first connection comes.
    once_started(lambda: client.open_tunnel(view.id, TunnelTarget("shell", rank, ("true",)))).connection.close()
    listeners = [(item, _listener(item)) for item in wanted]
    for item, listener in listeners:
        local = listener.getsockname()[1]
        say(f"127.0.0.1:{local} leads to port {item.remote} of rank {rank or 0} of {view.id}; Ctrl-C ends it")
        if item.local and local != item.local:
            notice(f"port {item.local} is taken on this machine, so it is {local}")
    places = threading.BoundedSemaphore(_MOST)
    for item, listener in listeners[1:]:
        serve = partial(_serve, client, view.id, item, rank, listener, places)
        threading.Thread(target=serve, daemon=True).start()
    _serve(client, view.id, listeners[0][0], rank, listeners[0][1], places)


def _listener(item: Forwarded) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", item.local if item.local is not None else item.remote))
    except OSError as error:
        if item.local is not None:
            listener.close()
            raise UserError(
                f"port {item.local} cannot be listened on here: {error.strerror}",
                "Give another one, or 0 for a free one.",
            ) from error
        listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


def _serve(
    client: Client,
    run: str,
    item: Forwarded,
    rank: int | None,
    listener: socket.socket,
    places: threading.BoundedSemaphore,
) -> None:
    printed: set[str] = set()
    with closing(listener):
        while True:
            places.acquire()
            connection, _ = listener.accept()
            carry = partial(_carry, client, run, item.remote, rank, connection, places, printed)
            threading.Thread(target=carry, daemon=True).start()


def _carry(
    client: Client,
    run: str,
    port: int,
    rank: int | None,
    connection: socket.socket,
    places: threading.BoundedSemaphore,
    printed: set[str],
) -> None:
    """In a thread: serve one connection to its end; each error is printed once."""
    end = SocketEnd(connection)
    try:
        tunnel = client.open_tunnel(run, TunnelTarget("port", rank, port=port))
        Session(tunnel, {frames.DATA: end}, {frames.DATA: end}).run()
    except MusterError as error:
        if error.message not in printed:
            printed.add(error.message)
            say(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
    finally:
        end.close()
        client.close()
        places.release()
