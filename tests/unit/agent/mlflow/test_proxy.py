"""The proxy that ranks log to, spoken to by a socket of its own: what it answers to clients that are no MLflow."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.agent.mlflow.__main__ import Server
from muster.agent.mlflow.messages import ProxyRequest
from muster.agent.mlflow.proxy import Handler, Proxied

Ask = Callable[[str, bytes], tuple[int, dict[str, str]]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Posts a body to one of the proxy's calls, on one connection; whoever answers must do so in one piece."""
    (tmp_path / "events").mkdir()
    listening = socket.create_server(("127.0.0.1", 0))
    given = ProxyRequest(
        listening.fileno(), "mine", 1, "default", "secret", ("http://127.0.0.1:9",), "token", None,
        str(tmp_path / "events"), str(tmp_path / "uploads"),
    )  # fmt: skip
    server = Server(("127.0.0.1", 0), type("One", (Handler,), {"proxied": Proxied(given)}), bind_and_activate=False)
    server.socket.close()
    server.socket, server.daemon_threads = listening, False
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    connections: list[socket.socket] = []

    def post(target: str, body: bytes) -> tuple[int, dict[str, str]]:
        if not connections:
            connections.append(socket.create_connection(listening.getsockname(), timeout=20))
        head = f"POST /rank/0/api/2.0/mlflow/{target} HTTP/1.1\r\nAuthorization: Bearer secret\r\n"
        connections[-1].sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = connections[-1].recv(1 << 16)
        first, said = answer.split(b"\r\n", 1)[0], answer.split(b"\r\n\r\n", 1)[1]
        if b" 400 " in first:
            connections.pop().close()
        return int(first.split()[1]), json.loads(said)

    yield post
    for connection in connections:
        connection.close()
    server.shutdown()
    serving.join()
    server.server_close()


def test_an_answer_comes_in_one_piece(ask: Ask, tmp_path: Path) -> None:
    for step in range(3):
        body = {"run_id": "mine", "key": "loss", "value": 0.5, "step": step}
        assert ask("runs/log-metric", json.dumps(body).encode()) == (200, {})
    lines = (tmp_path / "events" / "rank_0.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[" * 100_000, "the body is no JSON object"),
        (b"\xff\xfe{{{", "the body is no JSON object"),
        (b'{"run_id": "mine", "key": "m", "value": 1, "timestamp": Infinity}', "'timestamp' must be a whole number"),
        (b'{"run_id": "mine", "key": "m", "value": 1, "step": 9' + b"9" * 30 + b"}", "'step' must be at most"),
    ],
)
def test_nonsense_is_refused_with_what_is_wrong(ask: Ask, body: bytes, why: str) -> None:
    status, answer = ask("runs/log-metric", body)
    assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE") and why in answer["message"]


def test_a_value_without_end_is_refused(ask: Ask) -> None:
    body = {"run_id": "mine", "key": "long", "value": "x" * 100_001}
    status, answer = ask("runs/log-parameter", json.dumps(body).encode())
    assert (
        status == 400
        and answer["message"] == "the value of 'long' has 100,001 characters, and at most 100,000 are kept"
    )
