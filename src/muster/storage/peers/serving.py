"""The process that serves blocks to other nodes: one per node, as long as its agent lives. Standard library only.

`GET /blocks/NAME/N` over TLS, with a grant that the server signed for the asking node, for this node and this content.
It reads the cache that movers fill, and exchanges no messages with them.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import tempfile
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from muster.errors import AccessDenied
from muster.host.children import Parent, ParentGone
from muster.host.network import address_towards
from muster.storage.grants import Grant, check, verify
from muster.storage.listener import Listener
from muster.storage.peers.messages import Serve, Serving
from muster.storage.peers.shelf import Missing, Shelves
from muster.wire.codec import from_json, to_json
from muster.wire.data.access import GRANT_HEADER, READ

log = logging.getLogger(__name__)

_MOST_CONNECTIONS = 256
_IDLE_S = 60.0
_HANDSHAKE_S = 10.0
_GRANTS_KEPT = 10_000
_TARGET = re.compile(r"/blocks/([0-9a-f]{64})/([0-9]{1,7})")


def main() -> None:
    parent = Parent(exit_after_s=0.0)
    try:
        request = from_json(Serve, parent.receive())
        server = Server(request)
        threading.Thread(target=server.serve_forever, args=(0.5,), name="serve", daemon=True).start()
        parent.send(to_json(Serving(server.port)))
        parent.gone.wait()
    except ParentGone:
        return


class Server(Listener):
    """Listens for other nodes."""

    def __init__(self, request: Serve) -> None:
        self.node = request.node
        self.shelves = Shelves(Path(request.cache))
        self._key = bytes.fromhex(request.identity.grant_key)
        self._tls = _tls(request.identity.certificate, request.identity.private_key)
        self._verified: dict[str, Grant] = {}
        if ":" in request.address:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((request.address, 0), _Handler, _MOST_CONNECTIONS)
        except OSError:
            # Others reach it by an address that is not its own, such as behind NAT.
            self.address_family = socket.AF_INET
            super().__init__((address_towards(()), 0), _Handler, _MOST_CONNECTIONS)

    def admit(self, token: str, name: str) -> None:
        """Check the grant for a content; raises AccessDenied."""
        grant = self._verified.get(token)
        if grant is None or time.time() >= grant.expires_at:
            grant = verify(token, self._key, time.time())
            if len(self._verified) >= _GRANTS_KEPT:
                self._verified.clear()
            self._verified[token] = grant
        check(grant, store=self.node, path=name, scope=READ)

    def wrapped(self, request: socket.socket) -> socket.socket:
        request.settimeout(_HANDSHAKE_S)
        # A client that dawdles over the handshake can be dropped meanwhile.
        return self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)

    def finish_request(self, request: Any, client_address: Any) -> None:
        with suppress(OSError):
            request.do_handshake()
            request.settimeout(_IDLE_S)
            super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection broke", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Blocks by name and number."""

    protocol_version = "HTTP/1.1"
    server: Server
    timeout = _IDLE_S

    def do_GET(self) -> None:
        target = _TARGET.fullmatch(self.path)
        if target is None:
            self._send(404, b"no such block")
            return
        try:
            self.server.admit(self.headers.get(GRANT_HEADER, ""), target[1])
        except (AccessDenied, ValueError) as error:
            self._send(403, str(error).encode())
            return
        self.server.trust(self.client_address)
        with self.server.answering(self.client_address):
            self._serve(target[1], int(target[2]))

    def _serve(self, name: str, block: int) -> None:
        try:
            size, pieces = self.server.shelves.read(name, block)
        except Missing as error:
            self._send(404, str(error).encode())
            return
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        try:
            for piece in pieces:
                self.wfile.write(piece)
        except (Missing, OSError):
            # The length has been sent already: closing is the only way to say that it failed.
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _tls(certificate: str, private_key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The library loads them only from files.
    with tempfile.NamedTemporaryFile("w", prefix="muster-peer-") as file:
        file.write(f"{certificate}\n{private_key}\n")
        file.flush()
        context.load_cert_chain(file.name)
    return context
