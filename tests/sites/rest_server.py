"""A scripted server on a Unix socket, for tests of what speaks to one: each route is a function of the request."""

from __future__ import annotations

import json
import re
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What a route answers: JSON, bytes, or pieces that are sent one by one; `cut` ends without the last chunk."""

    json: Any = None
    body: bytes | None = None
    pieces: Iterable[bytes] | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


class RestServer:
    """Use it as a context manager; `url` is where it listens, `requests` what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._routes: list[tuple[str, re.Pattern[str], Callable[[Request], Reply]]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="mrs-")
        self.socket = Path(self._folder.name) / "s"

    @property
    def url(self) -> str:
        return f"unix:{self.socket}"

    def on(self, method: str, path: str, answer: Callable[[Request], Reply] | Reply | Any) -> None:
        """Answer requests whose whole path matches; a later route wins. Plain data is sent as JSON."""
        route = answer if callable(answer) else lambda request: answer if isinstance(answer, Reply) else Reply(answer)
        self._routes.insert(0, (method, re.compile(path), route))

    def __enter__(self) -> RestServer:
        handler = type("Handler", (_Handler,), {"rest": self})
        self._server = _Server(str(self.socket), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.close_connections()
        self._server.server_close()
        self._folder.cleanup()

    def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        for method, path, route in self._routes:
            if method == request.method and path.fullmatch(request.path):
                reply = route(request)
                return reply if isinstance(reply, Reply) else Reply(reply)
        error = {"code": "not_found", "message": f"no {request.method} {request.path}", "hint": ""}
        return Reply({"error": error}, status=404)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    def __init__(self, path: str, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(path, handler)
        self._open: set[Any] = set()

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = super().get_request()
        self._open.add(connection)
        return connection, ("unix", 0)

    def close_connections(self) -> None:
        """Keep-alive connections would keep their threads waiting for a next request."""
        for connection in self._open:
            try:
                connection.shutdown(2)
            except OSError:
                pass


class _Handler(BaseHTTPRequestHandler):
    rest: RestServer
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        try:
            self._exchange()
        except ConnectionError:
            self.close_connection = True

    def _exchange(self) -> None:
        parts = urlsplit(self.path)
        query = {key: found[0] for key, found in parse_qs(parts.query).items()}
        request = Request(self.command, unquote(parts.path), query, dict(self.headers.items()), self._body())
        reply = self.rest.answer(request)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.pieces is None:
            body = (
                reply.body if reply.body is not None else b"" if reply.json is None else json.dumps(reply.json).encode()
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in reply.pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if reply.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self._line(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self._line()
        return b"".join(pieces)

    def _line(self) -> bytes:
        if line := self.rfile.readline():
            return line
        raise ConnectionError("the client went away in the middle of its request")
