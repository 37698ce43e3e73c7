"""What is kept of requests: a bounded amount, sent again until it arrives, never in the way of a request."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from muster.scoring.link import Link, Unreachable
from muster.scoring.serve import collecting
from muster.scoring.serve.collecting import Book, Collector, Event, payload
from muster.scoring.serve.settings import Settings

SETTINGS = Settings(endpoint="digits", deployment="blue", collections=["request"])


class Server:
    """A server that is away for a while."""

    def __init__(self) -> None:
        self.is_away = True
        self.files: dict[str, list[str]] = {}
        self.tried = threading.Event()

    def call(self, method: str, what: str, message: Any = None) -> None:
        self.tried.set()
        if self.is_away:
            raise Unreachable("away")
        self.files[message["file_id"]] = list(message["lines"])

    @property
    def lines(self) -> list[str]:
        return [line for lines in self.files.values() for line in lines]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(collecting, "_SEND_S", 0.01)
    monkeypatch.setattr(collecting, "_AGAIN_S", 0.01)
    return Server()


def test_what_does_not_fit_is_dropped_and_nothing_waits(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_MOST_WAITING", 20_000)
    book = Book(SETTINGS, cast(Link, server))
    for _ in range(1000):
        book.add("request", Event("text/plain", "", "x" * 100))
    assert book.dropped > 800
    assert server.tried.wait(30)
    server.is_away = False
    book.close()
    assert 0 < len(server.lines) <= 1000 - book.dropped


def test_a_server_that_comes_back_gets_each_event_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_MOST_SENT", 5000)
    book = Book(SETTINGS, cast(Link, server))
    for number in range(50):
        book.add("request", Event("text/plain", "", f"event {number:02}"))
    assert server.tried.wait(30)
    server.is_away = False
    book.close()
    assert len(server.lines) == len(set(server.lines)) == 50 and len(server.files) > 1


def test_payloads_of_every_kind() -> None:
    empty = Event("", "")
    assert payload(b'{"a": [1]}', "application/json", empty).data == {"a": [1]}
    assert payload(b"plain", "text/plain", empty).data == "plain"
    assert dict(payload(b"\xff\xd8", "image/jpeg", empty).fields()) == {
        "datacontenttype": "image/jpeg", "contentrange": "bytes 0-1/2", "data_base64": "/9g=",
    }  # fmt: skip
    assert payload(b"", "application/json", empty).data == ""
    assert dict(payload(b"x" * (2 << 20), "text/plain", empty).fields()) == {
        "datacontenttype": "text/plain", "data": None, "contentrange": "bytes */2097152",
    }  # fmt: skip
    assert payload(None, "text/plain", empty).data is None


def test_a_collector_without_collections_keeps_nothing_and_says_what_is_no_table() -> None:
    collecting.install(None)
    said: list[Exception] = []
    with pytest.raises(TypeError, match="DataFrame"):
        Collector("model_inputs").collect([1])
    context = Collector("model_inputs", on_error=said.append).collect([1])
    assert len(said) == 1 and context.get_id()
