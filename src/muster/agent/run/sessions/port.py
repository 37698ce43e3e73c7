"""A connection to a port that a rank listens on."""

from __future__ import annotations

import socket

from muster.agent.run.records import SessionCommand
from muster.agent.run.sessions.carrier import Carrier, Trouble
from muster.agent.run.sessions.session_rank import SessionRank
from muster.host import frames
from muster.host.streams import SocketEnd

_CONNECT_S = 5.0
_LAST_BYTES_S = 60.0


def carry(command: SessionCommand, carrier: Carrier, target: SessionRank) -> None:
    """Connect the tunnel to the port until both have ended, or the person leaves."""
    connection = SocketEnd(_connected(target.rank, command["port"], command["addresses"]))
    finished = False

    def control(kind: bytes, _payload: memoryview) -> None:
        nonlocal finished
        if kind == frames.END:
            finished = True
            connection.finish()

    if carrier.run({frames.DATA: connection}, connection, control, lambda: finished):
        carrier.say_exit(0)
        carrier.finish(_LAST_BYTES_S)
    connection.close()


def _connected(rank: int, port: int, addresses: list[str]) -> socket.socket:
    met = ""
    for address in dict.fromkeys(("127.0.0.1", "::1", *addresses)):
        try:
            return socket.create_connection((address, port), _CONNECT_S)
        except ConnectionRefusedError:
            continue
        except OSError as error:
            # No IPv6 here, or an address that is not this machine's: another one may work.
            met = met or (str(error) if address == "127.0.0.1" else "")
    raise Trouble(
        f"nothing listens on port {port} of rank {rank} (tried {', '.join(addresses) or '127.0.0.1'})"
        if not met
        else f"port {port} of rank {rank} does not answer: {met}"
    )
