"""A server boundary for agents: speaks the agents' protocol over a Unix socket, keeps everything in memory.

With it an agent can be tried alone, and be shown a server that is away, forgets its answers, or loses the agent.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import socketserver
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from muster.errors import JobError
from muster.wire.codec import from_json, to_json
from muster.wire.node.agents import (
    AttemptKey,
    Chunk,
    DeliveryAnswer,
    Event,
    Heartbeat,
    Hello,
    Order,
    Orders,
    Welcome,
    decode,
)
from muster.wire.node.requests import decode_files


@dataclass
class Kept:
    """What the server knows; survives its being away."""

    hellos: list[Hello] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """In the order of their first arrival; a repeated one counts once."""
    streams: dict[tuple[str, int, str], bytearray] = field(default_factory=dict)
    files: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    orders: dict[AttemptKey, Order] = field(default_factory=dict)
    forgettable: set[AttemptKey] = field(default_factory=set)
    """Told with every answer to a delivery."""
    archives: dict[str, bytes] = field(default_factory=dict)
    version: int = 0
    leave: bool = False
    received_chunks: int = 0
    received_events: int = 0
    orders_seen: int = 0
    """The version of the orders that the agent has."""
    file_calls: int = 0
    """That brought several files."""


class AgentServer:
    """Start it, give orders, wait for what comes."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.kept = Kept()
        self.lose_answers = 0
        """So many deliveries are applied without an answer."""
        self.lose_requests = 0
        """So many deliveries are dropped before they are applied."""
        self.unknown_agents = 0
        """So many deliveries are answered as from an agent that never said hello."""
        self.takes_files = threading.Event()
        self.takes_files.set()
        """While it is cleared, calls that bring files have no answer."""
        self.refused_files: set[str] = set()
        """Names that are not taken."""
        self.changed = threading.Condition()
        self._server: _UnixServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"unix:{self.socket_path}"

    def start(self) -> None:
        self.socket_path.unlink(missing_ok=True)
        self._server = _UnixServer(str(self.socket_path), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Go away as a killed server does: connections break, nothing that was acknowledged is lost."""
        if self._server is None or self._thread is None:
            return
        server, self._server = self._server, None
        server.shutdown()
        server.break_connections()
        server.server_close()
        self._thread.join()
        self.socket_path.unlink(missing_ok=True)
        with self.changed:
            self.changed.notify_all()

    @property
    def serving(self) -> bool:
        return self._server is not None

    def order(self, order: Order) -> None:
        """Want this of an attempt from now on."""
        with self.changed:
            if order.action == "forget":
                self.kept.orders.pop(order.key, None)
            self.kept.orders[order.key] = order
            self.kept.version += 1
            self.changed.notify_all()

    def dismiss(self) -> None:
        """Tell the agent to leave when it holds nothing."""
        with self.changed:
            self.kept.leave = True
            self.kept.version += 1
            self.changed.notify_all()

    def add_code(self, files: Mapping[str, bytes]) -> str:
        """Offer a snapshot; returns its digest."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return self.add_archive(buffer.getvalue())

    def add_archive(self, archive: bytes) -> str:
        digest = hashlib.sha256(archive).hexdigest()
        self.kept.archives[digest] = archive
        return digest

    def wait(self, condition: Callable[[Kept], Any], timeout_s: float = 30.0, what: str = "") -> Any:
        """Wait until the condition holds; returns its value, raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while not (value := condition(self.kept)):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"{what or 'the condition'} did not come true; events: {self.kept.events}")
                self.changed.wait(left_s)
            return value

    def wait_event(self, key: AttemptKey, kind: str, timeout_s: float = 30.0, **data: Any) -> Event:
        """The first event of this kind (and with this data) of an attempt."""

        def found(kept: Kept) -> Event | None:
            return next(
                (event for event in events_of(kept, key, kind) if data.items() <= vars(event.data).items()), None
            )

        event: Event = self.wait(found, timeout_s, f"{kind} of {key}")
        return event

    def events(self, key: AttemptKey, kind: str | None = None) -> list[Event]:
        with self.changed:
            return events_of(self.kept, key, kind)

    def stream(self, key: AttemptKey, name: str) -> bytes:
        with self.changed:
            return bytes(self.kept.streams.get((*key, name), b""))

    # What the handler calls

    def hello(self, hello: Hello) -> Welcome:
        with self.changed:
            self.kept.hellos.append(hello)
            self.changed.notify_all()
        return Welcome()

    def orders_since(self, seen: int, wait_s: float) -> Orders:
        deadline = time.monotonic() + wait_s
        with self.changed:
            self.kept.orders_seen = max(self.kept.orders_seen, seen)
            while self.kept.version == seen and self.serving and time.monotonic() < deadline:
                self.changed.wait(deadline - time.monotonic())
            return Orders(self.kept.version, tuple(self.kept.orders.values()), self.kept.leave)

    def apply(self, body: bytes) -> DeliveryAnswer:
        lengths: dict[tuple[str, int, str], int] = {}
        with self.changed:
            for frame in decode(io.BytesIO(body)):
                if isinstance(frame, Chunk):
                    self._apply_chunk(frame, lengths)
                elif isinstance(frame, Event):
                    self.kept.received_events += 1
                    if frame not in self.kept.events:
                        self.kept.events.append(frame)
                else:
                    self.kept.heartbeats.append(frame)
            self.changed.notify_all()
            forget = tuple(self.kept.forgettable)
        return DeliveryAnswer(tuple((*name, length) for name, length in lengths.items()), forget)

    def _apply_chunk(self, chunk: Chunk, lengths: dict[tuple[str, int, str], int]) -> None:
        self.kept.received_chunks += 1
        name = (chunk.run, chunk.attempt, chunk.stream)
        stream = self.kept.streams.setdefault(name, bytearray())
        if chunk.offset <= len(stream):
            stream += chunk.data[len(stream) - chunk.offset :]
        lengths[name] = len(stream)

    def put_files(self, query: Mapping[str, str], body: bytes) -> None:
        self.kept.file_calls += 1
        self.takes_files.wait()
        for file, content in decode_files(io.BytesIO(body)):
            self.put_file({**query, "path": file.path, "size": str(file.size), "sha256": file.sha256}, content)

    def put_file(self, query: Mapping[str, str], content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != query["sha256"] or len(content) != int(query["size"]):
            raise ValueError("the file's content is not what was announced")
        if query["path"] in self.refused_files:
            raise JobError("no such name")
        with self.changed:
            self.kept.files[(query["run"], int(query["attempt"]), query["path"])] = content
            self.changed.notify_all()


def events_of(kept: Kept, key: AttemptKey, kind: str | None = None) -> list[Event]:
    return [event for event in kept.events if event.key == key and kind in (None, event.kind)]


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._open: set[Any] = set()
        super().__init__(path, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def break_connections(self) -> None:
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection is part of the game."""


def _handler(server: AgentServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def address_string(self) -> str:
            return "agent"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            path, query = self._target()
            if path.endswith("/orders"):
                self._answer(server.orders_since(int(query["seen"]), float(query["wait_s"])))
            elif path.endswith("/archive"):
                self._send(server.kept.archives[path.split("/")[-2]])

        def do_POST(self) -> None:
            path, query = self._target()
            body = b"".join(self._body())
            if path.endswith("/files"):
                self._take_files(lambda: server.put_files(query, body))
            elif path.endswith("/hello"):
                self._answer(server.hello(from_json(Hello, json.loads(body))))
            elif server.unknown_agents > 0:
                server.unknown_agents -= 1
                self._answer(DeliveryAnswer(missing=True))
            elif server.lose_requests > 0:
                server.lose_requests -= 1
                self._hang_up()
            else:
                answer = server.apply(body)
                if server.lose_answers > 0:
                    server.lose_answers -= 1
                    self._hang_up()
                    return
                self._answer(answer)

        def do_PUT(self) -> None:
            _, query = self._target()
            content = b"".join(self._body())
            self._take_files(lambda: server.put_file(query, content))

        def _take_files(self, take: Callable[[], None]) -> None:
            try:
                take()
            except JobError as error:
                self._send(json.dumps({"error": {"code": error.code, "message": error.message}}).encode(), 400)
            else:
                self._answer({})

        def _target(self) -> tuple[str, dict[str, str]]:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query, keep_blank_values=True)
            return unquote(parts.path), {name: values[0] for name, values in query.items()}

        def _body(self) -> Iterator[bytes]:
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                yield self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def _answer(self, value: Any) -> None:
            self._send(json.dumps(to_json(value)).encode())

        def _send(self, content: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(2)

    return Handler
