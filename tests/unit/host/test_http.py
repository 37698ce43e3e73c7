"""HTTP against real servers: Unix socket, TCP, TLS and a shared folder."""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from muster.errors import MusterError, ServerUnavailable
from muster.host.http import (
    Address,
    Connection,
    PerThread,
    RetryingClient,
    UntrustedCertificate,
    following,
    retry_pauses,
    target_of,
)
from muster.server.http.tls import self_signed


@dataclass
class Seen:
    """A request as the server saw it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class Server:
    """What it answers next (status, body, or None to hang up), and what it was asked."""

    url: str = ""
    answers: list[tuple[int, bytes] | None] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.connections += 1
            self.number = server.connections

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self._body(headers)
            server.seen.append(Seen(self.command, self.path, headers, body, self.number))
            answer = server.answers.pop(0) if server.answers else (200, json.dumps({"got": body.decode()}).encode())
            if answer is None:
                self.close_connection = True
                return
            status, content = answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _body(self, headers: dict[str, str]) -> bytes:
            if headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(headers.get("content-length", 0)))
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def address_string(self) -> str:
            return ""

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    running: list[tuple[socketserver.BaseServer, threading.Thread]] = []

    def serve(kind: str = "http", certificate: tuple[Path, Path] | None = None) -> Server:
        server = Server()
        listening: socketserver.BaseServer
        if kind == "unix":
            listening = UnixServer(str(tmp_path / "s"), handler(server))
            server.url = f"unix:{tmp_path / 's'}"
        else:
            listening = TcpServer(("127.0.0.1", 0), handler(server))
            server.url = f"{kind}://127.0.0.1:{listening.server_address[1]}"
            if certificate is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        running.append((listening, thread))
        return server

    yield serve
    for listening, thread in running:
        listening.shutdown()
        thread.join()
        listening.server_close()


@pytest.mark.parametrize("kind", ["http", "unix"])
def test_json_both_ways_on_one_connection(serve: Serve, kind: str) -> None:
    server = serve(kind)
    connection = Connection(Address(server.url, token="secret"), headers={"Muster-Protocol": "2"})
    query = {"tag": ["a", "b"], "none": None, "wait_s": 1.5}
    assert connection.request("POST", "/runs/ä b", json_body={"x": 1}, query=query) == {"got": '{"x": 1}'}
    server.answers = [(204, b"")]
    assert connection.request("GET", "/runs") is None
    connection.close()
    first, second = server.seen
    assert first.target == "/runs/%C3%A4%20b?tag=a&tag=b&wait_s=1.5"
    assert first.headers["authorization"] == "Bearer secret"
    assert first.headers["muster-protocol"] == second.headers["muster-protocol"] == "2"
    assert first.headers["content-type"] == "application/json"
    assert first.connection == second.connection


def test_a_refusal_becomes_the_error_that_its_caller_wants(serve: Serve) -> None:
    server = serve()
    server.answers = [(404, b"no run"), (404, b"no run")]
    connection = Connection(
        Address(server.url), refused=lambda status, body: MusterError(f"{status}: {body.decode()}", code="not_found")
    )
    with pytest.raises(MusterError, match="404: no run"):
        connection.request("GET", "/runs/1")
    plain = Connection(Address(server.url))
    with plain.stream("GET", "/runs/1") as response:
        assert response.status == 404
        response.read()
    connection.close()
    plain.close()


def test_a_body_of_unknown_length_is_sent_in_chunks(serve: Serve) -> None:
    server = serve()
    connection = Connection(Address(server.url))
    connection.request("PUT", "/file", body=io.BytesIO(b"from a file"))
    connection.request("PUT", "/file", body=iter([b"in ", b"pieces"]))
    connection.request("PUT", "/file", body=memoryview(b"at once"))
    connection.close()
    assert [seen.body for seen in server.seen] == [b"from a file", b"in pieces", b"at once"]
    assert ["transfer-encoding" in seen.headers for seen in server.seen] == [True, True, False]


def test_a_stale_connection_is_opened_again_unseen(serve: Serve) -> None:
    server = serve()
    connection = Connection(Address(server.url))
    connection.request("GET", "/")
    server.answers = [None]
    assert connection.request("POST", "/", body=b"again") == {"got": "again"}
    assert [seen.connection for seen in server.seen] == [1, 1, 2]
    # What cannot be repeated is not.
    server.answers = [None]
    with pytest.raises(ServerUnavailable, match="did not answer"):
        connection.request("POST", "/", body=iter([b"once"]))
    connection.close()


def test_a_fresh_connection_that_breaks_is_not_tried_again(serve: Serve) -> None:
    server = serve()
    server.answers = [None]
    with pytest.raises(ServerUnavailable, match=f"the server at {server.url} did not answer"):
        Connection(Address(server.url)).request("GET", "/")
    assert len(server.seen) == 1


def test_nobody_listens(tmp_path: Path) -> None:
    connection = Connection(Address(f"unix:{tmp_path}/missing"))
    with pytest.raises(ServerUnavailable, match=r"no server answers at unix:.*/missing") as caught:
        connection.request("GET", "/")
    assert "muster status" in caught.value.hint
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_the_timeout_of_one_request(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        connection = Connection(Address(f"unix:{tmp_path}/s"))
        with pytest.raises(ServerUnavailable, match="timed out"):
            connection.request("GET", "/", timeout_s=0.01)


def test_an_answer_that_is_not_read_to_its_end_costs_the_connection(serve: Serve) -> None:
    server = serve()
    server.answers = [(200, b"x" * 100_000)]
    connection = Connection(Address(server.url))
    with connection.stream("GET", "/") as response:
        assert response.read(10) == b"x" * 10
    assert connection.request("GET", "/") == {"got": ""}
    connection.close()
    assert server.connections == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"), "elsewhere")


def test_a_pinned_certificate_is_trusted_by_whatever_name(serve: Serve, certificate: tuple[Path, Path]) -> None:
    server = serve("https", certificate)
    connection = Connection(Address(server.url, pinned_certificate=certificate[0].read_text()))
    assert connection.request("GET", "/") == {"got": ""}
    connection.close()


def test_a_certificate_that_nobody_vouches_for(serve: Serve, certificate: tuple[Path, Path]) -> None:
    server = serve("https", certificate)
    with pytest.raises(ServerUnavailable, match="its certificate is not known here"):
        Connection(Address(server.url)).request("GET", "/")
    pauses: list[float] = []
    with pytest.raises(UntrustedCertificate, match="set SSL_CERT_FILE"):
        RetryingClient(Address(server.url), pause=pauses.append).request("GET", "/")
    assert pauses == []


def test_the_sites_own_authority_is_trusted_outside(
    serve: Serve, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("https", certificate)
    monkeypatch.setenv("CURL_CA_BUNDLE", str(certificate[0]))
    client = RetryingClient(Address(server.url))
    assert client.request("GET", "/").status == 200
    client.close()


def test_external_addresses_are_reached_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.host.http import open_connection

    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", "near.example")
    far, near = Address("https://far.example"), Address("https://near.example")
    tunnel = open_connection(far, 1.0, True, None)
    assert (tunnel.host, tunnel.port) == ("proxy.example", 3128)
    assert open_connection(near, 1.0, True, None).host == "near.example"
    assert open_connection(far, 1.0, False, None).host == "far.example"
    assert open_connection(Address("https://localhost:1"), 1.0, True, None).host == "localhost"


def test_calls_through_a_shared_folder(tmp_path: Path) -> None:
    answered = threading.Event()
    requests: list[bytes] = []

    def answer() -> None:
        while not answered.wait(0.002):
            for request in tmp_path.glob("*.request"):
                requests.append(request.read_bytes())
                part = request.with_suffix(".reply")
                part.write_bytes(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"got": ""}')
                request.unlink()
                part.rename(request.with_suffix(".answer"))

    thread = threading.Thread(target=answer)
    thread.start()
    connection = Connection(Address(f"file:{tmp_path}", token="secret"))
    try:
        assert connection.request("POST", "/runs", json_body={}) == {"got": ""}
        assert connection.request("GET", "/runs") == {"got": ""}
    finally:
        answered.set()
        thread.join()
        connection.close()
    assert requests[0].startswith(b"POST /runs HTTP/1.1\r\n") and b"Bearer secret" in requests[0]
    with pytest.raises(ServerUnavailable, match="no answer came through"):
        connection.request("GET", "/runs", timeout_s=0.01)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ServerUnavailable, match="is not there"):
        Connection(Address(f"file:{tmp_path}/missing")).request("GET", "/")


def test_addresses_are_shown_without_secrets() -> None:
    assert Address("https://user:secret@host:1/path").shown == "https://host:1"
    assert Address("unix:/run/s").shown == "/run/s"


def test_each_thread_has_its_own_connection() -> None:
    connections = PerThread(Connection)
    one, other = Address("http://one"), Address("http://other")
    mine = connections.to(one)
    assert connections.to(one) is mine
    theirs: list[Connection] = []
    thread = threading.Thread(target=lambda: theirs.append(connections.to(one)))
    thread.start()
    thread.join()
    assert theirs[0] is not mine
    assert connections.to(other).address == other
    connections.close()
    assert connections.to(other) is not mine


def test_a_forked_child_opens_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = PerThread(Connection)
    mine = connections.to(Address("http://one"))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert connections.to(Address("http://one")) is not mine


def client_of(server: Server, pauses: list[float] | None = None, tries: int = 3) -> RetryingClient:
    return RetryingClient(Address(server.url), tries=tries, pause=(pauses if pauses is not None else []).append)


def test_what_may_pass_is_tried_again(serve: Serve) -> None:
    server = serve()
    server.answers = [(503, b"busy"), None, (200, b"done")]
    pauses: list[float] = []
    client = client_of(server, pauses)
    answer = client.request("PUT", "/blob?sig=a%2Fb", body=b"bytes", headers={"x-one": "1"})
    client.close()
    assert (answer.status, answer.body) == (200, b"done")
    assert 1 <= len(pauses) <= 2
    assert {(seen.target, seen.body, seen.headers["x-one"]) for seen in server.seen} == {
        ("/blob?sig=a%2Fb", b"bytes", "1")
    }


def test_a_refusal_is_an_answer_at_once(serve: Serve) -> None:
    server = serve()
    server.answers = [(403, b"no"), (404, b"gone"), (503, b"busy")]
    client = client_of(server)
    assert client.request("GET", "/").status == 403
    assert client.request("GET", "/").status == 404
    assert client.request("GET", "/", allowed=(503,)).status == 503
    client.close()
    assert len(server.seen) == 3


def test_the_last_answer_counts(serve: Serve) -> None:
    server = serve()
    server.answers = [(500, b"1"), (502, b"2"), (503, b"3")]
    client = client_of(server)
    assert client.request("GET", "/").body == b"3"
    client.close()


def test_a_server_that_stays_away(tmp_path: Path) -> None:
    pauses: list[float] = []
    client = RetryingClient(Address(f"unix:{tmp_path}/missing"), tries=3, pause=pauses.append)
    with pytest.raises(ServerUnavailable, match=r"/missing does not answer: \[Errno 2\]"):
        client.request("GET", "/")
    assert len(pauses) == 2


def test_a_long_body_is_made_anew_for_each_try(serve: Serve) -> None:
    server = serve()
    server.answers = [(503, b""), (200, b"")]
    client = client_of(server)
    assert client.request("PUT", "/", body=lambda: iter([b"one ", b"two"])).status == 200
    client.close()
    assert [seen.body for seen in server.seen] == [b"one two", b"one two"]


def test_a_body_goes_straight_into_a_buffer(serve: Serve) -> None:
    server = serve()
    data = os.urandom(300_000)
    server.answers = [(206, data), (206, data[:10]), (206, data), (404, b"gone")]
    client = client_of(server)
    buffer = bytearray(len(data))
    answer = client.request("GET", "/", into=memoryview(buffer))
    assert (answer.status, answer.body, bytes(buffer)) == (206, b"", data)
    # One that is too short is no answer.
    buffer = bytearray(len(data))
    client.request("GET", "/", into=memoryview(buffer))
    assert bytes(buffer) == data
    assert client.request("GET", "/", into=memoryview(buffer)).body == b"gone"
    client.close()


def test_a_body_is_followed_while_it_arrives(serve: Serve) -> None:
    server = serve()
    data = os.urandom(700_000)
    server.answers = [(206, data), (200, data + b"more")]
    client, heard = client_of(server, tries=1), list[int]()
    following.filled = heard.append
    try:
        client.request("GET", "/", into=memoryview(bytearray(len(data))))
        assert heard == [262_144, 524_288, 700_000]
        with pytest.raises(ServerUnavailable, match="sends 700004 bytes where 700000 were asked for"):
            client.request("GET", "/", into=memoryview(bytearray(len(data))))
    finally:
        del following.filled
    client.close()


def test_pauses_grow_to_a_limit() -> None:
    pauses = list(retry_pauses(9, first_s=0.1, most_s=1.0))
    assert pauses[-1] is None
    waits = [pause for pause in pauses if pause is not None]
    assert len(waits) == 8
    assert 0.05 <= waits[0] <= 0.15 and all(wait <= 1.5 for wait in waits)
    assert list(retry_pauses(1)) == [None]


def test_targets_are_quoted_once() -> None:
    assert target_of("/a b/@latest:1~") == "/a%20b/@latest:1~"
    assert target_of("/a", {"x": None}) == "/a"


def test_reading_on_after_a_broken_body_is_the_callers_matter(serve: Serve) -> None:
    server = serve()
    server.answers = [(200, b"whole")]
    connection = Connection(Address(server.url))
    with pytest.raises(http.client.IncompleteRead), connection.stream("GET", "/") as response:
        response.read()
        raise http.client.IncompleteRead(b"")
    assert connection.request("GET", "/") == {"got": ""}
    connection.close()
    assert server.connections == 2
