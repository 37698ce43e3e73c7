"""What is kept of requests: a bounded amount, sent again until it arrives, never in the way of a request."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, cast

import pytest

from muster.scoring.link import Link, Refused, Unreachable
from muster.scoring.serve import collecting
from muster.scoring.serve.collecting import Book, Collector, Event, Sample, payload
from muster.scoring.serve.http import Answer
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


def test_a_file_that_the_server_refuses_holds_up_no_other(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    refused: list[str] = []
    take = server.call

    def call(method: str, what: str, message: Any = None) -> None:
        if "poison" in message["lines"][-1]:
            refused.append(message["file_id"])
            server.tried.set()
            raise Refused("422: too long")
        take(method, what, message)

    server.is_away, server.call = False, call  # type: ignore[method-assign]
    book = Book(SETTINGS, cast(Link, server))
    book.add("request", Event("text/plain", "", "poison"))
    assert server.tried.wait(30)
    book.add("request", Event("text/plain", "", "good"))
    book.close()
    assert len(refused) == 1 and [json.loads(line)["data"] for line in server.lines] == ["good"]
    assert "1 events were not collected: 422: too long" in capsys.readouterr().err


def test_what_cannot_be_a_line_is_named_without_its_data(server: Server) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    server.is_away = False
    book = Book(SETTINGS, cast(Link, server))
    book.add("request", Event("application/json", "bytes 0-9/10", deep))
    book.add("request", payload(b"\1" * (1 << 20), "text/plain", Event("", "")))
    book.close()
    assert [json.loads(line)["data"] for line in server.lines] == [None, None]


def test_a_body_that_is_too_large_to_be_kept_is_not_held(server: Server) -> None:
    pieces = [b"x" * (1 << 19)] * 5

    async def receive() -> Any:
        return {"type": "http.request", "body": pieces.pop(), "more_body": bool(pieces)}

    server.is_away = False
    book = Book(SETTINGS, cast(Link, server))
    sample = Sample(book, "POST", "/score", {}, receive)

    async def take() -> None:
        while (await sample.receive())["more_body"]:
            pass

    asyncio.run(take())
    assert not sample._body
    sample.end(Answer(200, b"{}"), "1")
    book.close()
    assert json.loads(server.lines[0])["contentrange"] == "bytes */2621440"


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
