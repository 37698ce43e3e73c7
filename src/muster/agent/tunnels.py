"""This node's ends of tunnels: dialled when the server says that somebody waits, then passed to the attempt's keeper.

A connection without TLS goes to the keeper directly. One with TLS stays here, where its keys are, and a thread relays
its bytes.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from muster.agent.link import Link, Trouble
from muster.agent.run.records import SessionCommand
from muster.agent.threads import Loop, Workers
from muster.defaults import TUNNELS_PER_NODE
from muster.host.streams import Duct, SocketEnd, Waiting
from muster.host.tunnels import TlsEnd
from muster.wire.node.agents import AttemptKey
from muster.wire.node.tunnels import TunnelOrder

log = logging.getLogger(__name__)

Enter = Callable[[AttemptKey, SessionCommand, int], bool]

_DIALLERS = 4
_NO_STREAMS = (
    "this node only reaches the server through a shared folder, which cannot carry tunnels",
    "Let nodes connect to the server's port (`server_port` of the cluster), or log in to the node as your site does.",
)


class Tunnels:
    """The tunnels of a node; `open` is called in the agent's loop."""

    def __init__(self, link: Link, loop: Loop, enter: Enter, address: str) -> None:
        self._link = link
        self._loop = loop
        self._enter = enter
        self._address = address
        self._dialled: deque[str] = deque(maxlen=4 * TUNNELS_PER_NODE)
        self._workers = Workers("tunnels", _DIALLERS)
        self._relay: Relay | None = None

    def open(self, order: TunnelOrder, refusal: str) -> None:
        """Dial once per order, which is repeated until the tunnel's end is there; `refusal`: why it is refused."""
        if order.id in self._dialled:
            return
        self._dialled.append(order.id)
        if refusal:
            self._workers.submit(partial(self._refuse, order, refusal))
        else:
            self._workers.submit(partial(self._dial, order))

    def close(self) -> None:
        if self._relay is not None:
            self._relay.close()
        self._workers.close(patience_s=0.0)

    def _dial(self, order: TunnelOrder) -> None:
        """In a worker."""
        if self._link.reached_at().url.startswith("file:"):
            self._refuse(order, *_NO_STREAMS)
            return
        try:
            end = self._link.dial_tunnel(order.id)
        except Trouble as error:
            log.info("no tunnel for %s: %s", order.run, error)
            self._refuse(order, f"the node could not open its end of the tunnel: {error}")
            return
        self._loop.post(partial(self._hand_over, order, end))

    def _refuse(self, order: TunnelOrder, message: str, hint: str = "") -> None:
        """In a worker."""
        with suppress(*Trouble):
            self._link.refuse_tunnel(order.id, message, hint)

    def _hand_over(self, order: TunnelOrder, end: socket.socket) -> None:
        """In the loop, the only thread that talks to keepers."""
        command, key = session_command(order, [self._address]), (order.run, order.attempt)
        if not isinstance(end, ssl.SSLSocket):
            # Where the keeper has just ended, closing it is all that is left to do.
            self._enter(key, command, end.fileno())
            end.close()
            return
        ours, theirs = socket.socketpair()
        if self._enter(key, command, theirs.fileno()):
            self._relay = self._relay or Relay()
            self._relay.add(end, ours)
        else:
            end.close()
            ours.close()
        theirs.close()


def session_command(order: TunnelOrder, addresses: list[str]) -> SessionCommand:
    """The command for the keeper."""
    target = order.target
    terminal = target.terminal
    return {
        "session": target.kind,
        "rank": target.rank,
        "command": list(target.command),
        "terminal": [terminal.rows, terminal.columns, terminal.type] if terminal else None,
        "port": target.port,
        "addresses": [address for address in addresses if address],
        "py_spy": _py_spy(),
    }


def _py_spy() -> str:
    bundled = Path(sys.executable).parent / "py-spy"
    return str(bundled) if bundled.exists() else shutil.which("py-spy") or ""


class Relay:
    """A thread that relays bytes between connections with TLS and keepers."""

    def __init__(self) -> None:
        self._joined: list[tuple[TlsEnd, SocketEnd, Duct, Duct]] = []
        self._new: deque[tuple[ssl.SSLSocket, socket.socket]] = deque()
        self._wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_write, False)
        self._closing = False
        threading.Thread(target=self._run, name="tunnel-relay", daemon=True).start()

    def add(self, network: ssl.SSLSocket, keeper: socket.socket) -> None:
        """Join two connections until either ends; callable from any thread."""
        self._new.append((network, keeper))
        self._call()

    def close(self) -> None:
        self._closing = True
        self._call()

    def _call(self) -> None:
        with suppress(OSError):
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        while not self._closing:
            while self._new:
                network, keeper = self._new.popleft()
                far, near = TlsEnd(network), SocketEnd(keeper)
                self._joined.append((far, near, Duct(far, near), Duct(near, far)))
            waiting = Waiting()
            for joined in list(self._joined):
                self._turn(joined, waiting)
            waiting.watch(self._wake)
            if self._wake in waiting.wait():
                with suppress(OSError):
                    os.read(self._wake, 4096)
        for far, near, _, _ in self._joined:
            far.close()
            near.close()

    def _turn(self, joined: tuple[TlsEnd, SocketEnd, Duct, Duct], waiting: Waiting) -> None:
        far, near, inwards, outwards = joined
        for duct in (inwards, outwards):
            waiting.add(duct.turn())
        # A finished session leaves when the other end does: data of a connection closed earlier may not arrive.
        if inwards.ended or outwards.broken or (outwards.ended and near.is_hung_up):
            far.close()
            near.close()
            self._joined.remove(joined)
        elif outwards.ended:
            waiting.add([(near.fileno(), 0)])
