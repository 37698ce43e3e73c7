"""The process that serves a folder: `python -m muster.fileserver.nfs SETTINGS LOG`.

RPC (RFC 5531) over TCP, a thread for each client.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import resource
import signal
import socket
import socketserver
import struct
import sys
from pathlib import Path

from muster.fileserver.nfs.operations import Compound
from muster.fileserver.nfs.tree import Tree
from muster.fileserver.nfs.xdr import Garbled, Reader, u32
from muster.storage.listener import Listener
from muster.wire.codec import from_json
from muster.wire.message import wire

log = logging.getLogger(__name__)

_PROGRAM, _VERSION = 100003, 4
_CALL, _REPLY, _RPC_VERSION = 0, 1, 2
_NOTHING, _COMPOUND = 0, 1
_SUCCESS, _NO_PROGRAM, _OTHER_VERSION, _NO_PROCEDURE, _GARBAGE = range(5)
_LAST_PIECE = 0x80000000
_CALL_BYTES = 64 << 10
_CREDENTIAL_BYTES = 400
_PATIENCE_S = 60.0
_MOST_CLIENTS = 1_000
_FILES_EACH = 4
"""File descriptors per client: its connection, and the files that are read for it."""
_OWN_FILES = 64
_IDLE_PROBE_S, _IDLE_PROBES = 60, 3


@wire
class Settings:
    """What is served, where, and to whom."""

    name: str
    folder: str
    host: str
    port: int
    clients: str


def main() -> None:
    settings = from_json(Settings, json.loads(Path(sys.argv[1]).read_text()))
    logging.basicConfig(filename=sys.argv[2], format="%(asctime)s :%(levelname)s :%(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    try:
        with Server(settings) as server:
            server.serve_forever(0.5)
    except OSError as error:
        log.critical("%s", error)
        sys.exit(1)


class Server(Listener):
    """Accepts the clients of one network, and nobody else."""

    def __init__(self, settings: Settings) -> None:
        self.tree = Tree(settings.name, settings.folder)
        self._clients = ipaddress.ip_network(settings.clients, strict=False)
        # The process that watches this one calls it from the same machine.
        self._here = {ipaddress.ip_address(address) for address in ("127.0.0.1", settings.host)}
        self.address_family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        super().__init__((settings.host, settings.port), _Client, _most_clients())

    def verify_request(self, request: object, client_address: object) -> bool:
        address = ipaddress.ip_address(str(client_address[0]).partition("%")[0])  # type: ignore[index]
        return address in self._clients or address in self._here

    def handle_error(self, request: object, client_address: object) -> None:
        log.error("a client's connection broke", exc_info=True)


class _Client(socketserver.BaseRequestHandler):
    """One connection: calls one after the other."""

    server: Server
    request: socket.socket

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client that is gone without closing its connection is noticed.
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_PROBE_S)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _IDLE_PROBES)
        with contextlib.suppress(OSError, Garbled):
            while (call := self._call()) is not None:
                with self.server.answering(self.client_address):
                    reply = answered(self.server.tree, call)
                self.request.sendall(struct.pack(">I", _LAST_PIECE | len(reply)) + reply)

    def _call(self) -> bytes | None:
        """The next call; None where the client has gone."""
        found = b""
        while True:
            # A client may be silent between calls, but not within one.
            self.request.settimeout(None if not found else _PATIENCE_S)
            first = self.request.recv(1)
            if not first:
                return None
            self.request.settimeout(_PATIENCE_S)
            (mark,) = struct.unpack(">I", first + self._exactly(3))
            length = mark & ~_LAST_PIECE
            if len(found) + length > _CALL_BYTES:
                raise Garbled(f"a call of more than {_CALL_BYTES} bytes")
            if not length:
                raise Garbled("a piece without bytes, of which there could be any number")
            found += self._exactly(length)
            if mark & _LAST_PIECE:
                return found

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self.request.recv(count - len(found))
            if not piece:
                raise ConnectionError("it went away within a call")
            found += piece
        return bytes(found)


def _most_clients() -> int:
    """As many as this process has file descriptors for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CLIENTS if files < 0 else min(_MOST_CLIENTS, max(1, (files - _OWN_FILES) // _FILES_EACH))


def answered(tree: Tree, call: bytes) -> bytes:
    """The reply to one call; raises Garbled if it is not a call."""
    reader = Reader(call)
    number, kind = reader.u32(), reader.u32()
    if kind != _CALL:
        raise Garbled("it is no call")
    if reader.u32() != _RPC_VERSION:
        return u32(number) + u32(_REPLY) + u32(1) + u32(0) + u32(_RPC_VERSION) * 2
    program, version, procedure = reader.u32(), reader.u32(), reader.u32()
    for _ in ("who asks", "how that is shown"):
        reader.u32(), reader.opaque(_CREDENTIAL_BYTES)
    begin = u32(number) + u32(_REPLY) + u32(0) + u32(0) + u32(0)
    if program != _PROGRAM:
        return begin + u32(_NO_PROGRAM)
    if version != _VERSION:
        return begin + u32(_OTHER_VERSION) + u32(_VERSION) * 2
    if procedure == _NOTHING:
        return begin + u32(_SUCCESS)
    if procedure != _COMPOUND:
        return begin + u32(_NO_PROCEDURE)
    try:
        return begin + u32(_SUCCESS) + Compound(tree).answered(reader)
    except Garbled:
        return begin + u32(_GARBAGE)
