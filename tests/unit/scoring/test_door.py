"""The front door's decisions: which deployment, which replica, who is let in, how many may wait."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from muster.scoring.door.app import MOST_DEATHS, App
from muster.scoring.door.dispatch import Dispatcher, Lost, Refused
from muster.scoring.door.said import Figures, Said, Silence, past, together
from muster.scoring.door.said import parse as parse_said
from muster.scoring.door.table import (
    Backend,
    Route,
    Table,
    admits,
    chosen,
    least_busy,
    mirrored,
    parse,
    sole_replica,
    telling,
    token_for,
    told,
)
from muster.scoring.figures import Spread
from muster.scoring.serve.scaling import Pace, wanted
from muster.server.endpoints import keys
from muster.wire.codec import to_json
from muster.wire.serving import endpoints as wire

ONE, TWO = Backend("run", "127.0.0.1", 1, True, "k"), Backend("run", "127.0.0.1", 2, True, "k")
BLUE = Route("blue", 90, 0, 1000.0, 1, 50.0, False, (ONE, TWO))
GREEN = Route("green", 10, 0, 1000.0, 1, 50.0, False, (ONE,))
HEADERS = [(b"authorization", b"Bearer first")]
TABLE = Table(1, "digits", "127.0.0.1", 0, ("first", "second"), "", (BLUE, GREEN))


def test_the_traffic_is_shared_out_by_weight() -> None:
    drawn = Counter(route.name for at in range(1000) if (route := chosen(TABLE, None, at / 1000)))
    assert drawn == {"blue": 900, "green": 100}
    empty = replace(TABLE, deployments=(replace(BLUE, weight=0),))
    assert chosen(empty, None, 0.5) is None and chosen(replace(TABLE, deployments=()), None, 0.0) is None


def test_a_request_may_name_its_deployment() -> None:
    assert chosen(replace(TABLE, deployments=(BLUE, replace(GREEN, weight=0))), "green", 0.0) is not None
    assert chosen(TABLE, "red", 0.0) is None


def test_copies_go_to_another_deployment_than_the_one_that_answers() -> None:
    table = replace(TABLE, deployments=(BLUE, replace(GREEN, weight=0, mirror=20)))
    copies = [mirrored(table, BLUE, at / 100) for at in range(100)]
    assert sum(route is not None for route in copies) == 20
    assert mirrored(table, table.deployments[1], 0.0) is None


@pytest.mark.parametrize(
    ("shown", "good"),
    [
        ("Bearer first", True), ("bearer second", True), ("Bearer third", False), ("first", False), ("", False),
        ("Bearer ", False), ("Basic first", False), ("Bearer f\xfcrst", False),
    ],
)  # fmt: skip
def test_either_key_opens_the_endpoint(shown: str, good: bool) -> None:
    assert admits(TABLE, shown, 0.0) is good


def test_tokens_open_the_endpoint_until_they_expire() -> None:
    table = replace(TABLE, keys=(), token_key="secret")
    token = token_for("digits", "secret", 100)
    assert admits(table, f"Bearer {token}", 99.0) and not admits(table, f"Bearer {token}", 100.0)
    assert not admits(table, f"Bearer {token[:-1]}x", 1.0) and not admits(table, "Bearer muster_endpoint_9.", 1.0)
    assert not admits(replace(table, endpoint="other"), f"Bearer {token}", 1.0)
    kept = keys.Kept("p", "s", "secret")
    assert keys.shown(kept, "digits", "aml_token", 100 - keys.TOKEN_S).token == token


def test_the_table_is_what_the_server_sends() -> None:
    sent = wire.RouteTable(
        3, "digits", "127.0.0.1", 80, ("a", "b"), "",
        (wire.Route("blue", 100, 0, 5000, 1, 500, True, (wire.Backend("run", "::1", 5, True, "k"),)),),
    )  # fmt: skip
    assert parse(to_json(sent)).deployments[0].backends[0].port == 5


def test_the_least_busy_replica_that_is_ready_is_asked() -> None:
    assert least_busy((ONE, TWO), {ONE.url: 1}, 2) == TWO
    assert least_busy((ONE, TWO), {ONE.url: 2, TWO.url: 2}, 2) is None
    starting = replace(TWO, ready=False)
    assert least_busy((ONE, starting), {ONE.url: 1}, 1) is None
    assert least_busy((starting,), {}, 1) == starting and least_busy((), {}, 1) is None


def test_a_replica_whose_node_is_lost_or_was_not_reached_is_not_asked() -> None:
    gone = replace(ONE, ready=False, gone=True)
    assert least_busy((gone, TWO), {TWO.url: 1}, 2) == TWO and least_busy((gone,), {}, 2) is None
    assert least_busy((ONE, TWO), {TWO.url: 1}, 2, {ONE.url: 1.0}) == TWO
    assert least_busy((ONE, TWO), {TWO.url: 2}, 2, {ONE.url: 1.0}) is None
    assert least_busy((ONE,), {}, 1, {ONE.url: 1.0}) == ONE


def test_requests_inside_a_replica_that_is_gone_end_and_those_of_a_client_that_left_are_told_apart() -> None:
    async def work() -> None:
        dispatcher = Dispatcher(GREEN)

        async def answer() -> int:
            await asyncio.sleep(60)
            return 200

        lost, left = (asyncio.ensure_future(dispatcher.inside(ONE, answer())) for _ in range(2))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        dispatcher.update(replace(GREEN, backends=(replace(ONE, ready=False, gone=True),)))
        with pytest.raises(Lost):
            await lost

    asyncio.run(work())


def test_the_turn_of_a_request_whose_client_went_is_the_next_ones() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        dispatcher = Dispatcher(replace(GREEN, queue_wait_ms=60_000.0))
        first = await dispatcher.acquire(loop.time() + 60)
        left, stays = (asyncio.ensure_future(dispatcher.acquire(loop.time() + 60)) for _ in range(2))
        await asyncio.sleep(0)
        # Both in the same moment: it is its turn, and it is no longer there to take it.
        dispatcher.release(first)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert await asyncio.wait_for(stays, 30) == ONE

    asyncio.run(work())


def test_requests_wait_their_turn_and_no_longer_than_they_may() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        dispatcher = Dispatcher(GREEN)
        first = await dispatcher.acquire(loop.time() + 60)
        with pytest.raises(Refused):
            await dispatcher.acquire(loop.time() + 60)
        second = asyncio.ensure_future(dispatcher.acquire(loop.time() + 60))
        await asyncio.sleep(0)
        dispatcher.release(first)
        assert await second == ONE and dispatcher.waiting == 0
        dispatcher.update(replace(GREEN, backends=()))
        with pytest.raises(asyncio.TimeoutError):
            await dispatcher.acquire(loop.time() + 0.01)
        waiting = asyncio.ensure_future(dispatcher.acquire(loop.time() + 60))
        await asyncio.sleep(0)
        dispatcher.update(replace(GREEN, backends=(TWO,)))
        assert await waiting == TWO

    asyncio.run(work())


def test_percentiles_are_those_of_the_last_minute() -> None:
    now = [0.0]
    spread = Spread(lambda: now[0])
    assert spread.percentiles(0.5) == [0.0]
    for value in range(1, 101):
        spread.add(float(value))
    p50, p99 = spread.percentiles(0.5, 0.99)
    assert 50 <= p50 <= 58 and 99 <= p99 <= 115 and spread.count == 100
    now[0] = 120.0
    assert spread.count == 0


@pytest.mark.parametrize(
    ("now", "busy", "waiting", "needed"),
    [(1, 0.0, 0, 1), (1, 0.7, 0, 1), (1, 0.9, 0, 2), (2, 1.0, 0, 3), (2, 0.1, 9, 3), (4, 0.1, 0, 1), (8, 1.0, 99, 8)],
)
def test_the_number_of_replicas_follows_the_load(now: int, busy: float, waiting: int, needed: int) -> None:
    assert wanted(now, busy, waiting, 70.0, 1, 8) == needed


def test_the_last_replica_stays_while_anybody_waits_for_it() -> None:
    assert wanted(1, 0.0, 0, 70.0, 0, 8) == 0 and wanted(1, 0.0, 1, 70.0, 0, 8) == 1


def test_replicas_are_ended_one_at_a_time_and_not_at_once() -> None:
    pace = Pace(30.0)
    assert pace.next(4, 1, 0.0) == 4
    assert pace.next(4, 1, 30.0) == 3
    assert pace.next(3, 1, 30.0 + 1) == 3
    assert pace.next(3, 5, 30.0 + 2) == 5


class _Library:
    """The errors of an HTTP client, as the front door tells them apart."""

    ClientError = type("ClientError", (Exception,), {})
    ClientConnectorError = type("ClientConnectorError", (ClientError,), {})
    ServerTimeoutError = type("ServerTimeoutError", (TimeoutError,), {})

    @staticmethod
    def ClientTimeout(sock_connect: float) -> float:
        return sock_connect


class _Client:
    """Replicas that do what a test says."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self.errors = list(errors)
        self.asked: list[str] = []

    async def request(self, _: str, url: str, timeout: float, **__: object) -> object:
        self.patience_s = timeout
        self.asked.append(url)
        if not self.errors:
            await asyncio.Event().wait()
        raise self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]


@pytest.mark.parametrize(
    ("client", "idempotent", "status", "said"),
    [
        (_Client(_Library.ClientConnectorError), False, 503, "no replica of blue is there"),
        (_Client(_Library.ServerTimeoutError), False, 503, "no replica of blue is there"),
        (_Client(), False, 408, "blue gave no answer"),
        (_Client(_Library.ClientError), False, 502, "ended before it answered"),
        (_Client(_Library.ClientError, _Library.ClientConnectorError), True, 503, "no replica of blue is there"),
        (_Client(_Library.ClientError), True, 502, f"{MOST_DEATHS} replicas of blue that had the request ended"),
    ],
)
def test_what_a_client_is_told_where_no_replica_answers(
    client: _Client, idempotent: bool, status: int, said: str
) -> None:
    sent, _ = _asked(client, idempotent)
    assert sent[0]["status"] == status and said in sent[1]["body"].decode()
    # Time is left for another replica where nobody is reached at this one.
    assert client.patience_s <= 0.1


def test_a_request_whose_replica_died_is_repeated_at_another() -> None:
    client = _Client(_Library.ClientError)
    _asked(client, True)
    assert {url.removesuffix("/score") for url in client.asked[:2]} == {ONE.url, TWO.url}


def test_who_has_an_answer_finds_a_place_for_the_next_request() -> None:
    async def work() -> None:
        app = App(TABLE, _Client(_Library.ClientError), _Library, str)
        rest, found = asyncio.Event(), []
        rest.set()

        async def send(message: dict[str, Any]) -> None:
            found.append([dispatcher.open for dispatcher in app.dispatchers.values()])

        scope = {"path": "/score", "method": "POST", "query_string": b"", "headers": HEADERS}
        await app(scope, _coming(b"{}", rest), send)
        head, body = found
        assert sum(head) == 1 and sum(body) == 0

    asyncio.run(work())


async def _status(app: App, receive: Any) -> int:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"path": "/score", "method": "POST", "query_string": b"", "headers": HEADERS}, receive, send)
    return int(sent[0]["status"])


def _coming(body: bytes, rest: asyncio.Event) -> Any:
    """A client that sends the rest of its body later."""
    pieces = iter([{"type": "http.request", "body": body, "more_body": True}, {"type": "http.request", "body": b""}])

    async def receive() -> Any:
        piece = next(pieces, None)
        if piece is None or not piece["body"]:
            await (rest.wait() if piece is not None else asyncio.Event().wait())
        return piece

    return receive


def test_clients_that_send_slowly_keep_no_place_from_others() -> None:
    async def work() -> None:
        route = replace(BLUE, weight=100, timeout_ms=60_000.0, backends=(ONE,))
        app = App(replace(TABLE, deployments=(route,)), _Client(_Library.ClientError), _Library, str)
        rest, here = asyncio.Event(), asyncio.Event()
        here.set()
        slow = [asyncio.ensure_future(_status(app, _coming(b"half", rest))) for _ in range(5)]
        await asyncio.sleep(0)
        assert await _status(app, _coming(b"whole", here)) == 502, "the replica was asked"
        # What answers is that of the table when a body is whole.
        app.update(replace(TABLE, deployments=()))
        rest.set()
        assert await asyncio.gather(*slow) == [404] * 5

    asyncio.run(work())


def test_bodies_on_their_way_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.scoring.door.app._MOST_COMING", 1000)

    async def work() -> None:
        app = App(TABLE, _Client(_Library.ClientError), _Library, str)
        rest = asyncio.Event()
        first = asyncio.ensure_future(_status(app, _coming(b"x" * 600, rest)))
        await asyncio.sleep(0)
        assert await _status(app, _coming(b"x" * 600, rest)) == 429
        rest.set()
        assert await first == 502
        assert await _status(app, _coming(b"x" * 600, rest)) == 502

    asyncio.run(work())


def test_an_answer_that_breaks_off_is_cut_off_and_counts_as_failed() -> None:
    class Answer:
        status, reason, headers, raw_headers = 200, "OK", {}, ()

        @property
        def content(self) -> Answer:
            return self

        async def iter_any(self) -> AsyncIterator[bytes]:
            yield b"half"
            raise _Library.ClientError

        def release(self) -> None:
            return None

    class Client:
        async def request(self, *_: object, **__: object) -> Answer:
            return Answer()

    sent, app = _asked(Client(), True)
    assert [message.get("body") for message in sent] == [None, b"half"]
    (figures,) = app.figures()
    assert (figures.failed, figures.codes) == (1, {"502": 1})


def _asked(client: Any, idempotent: bool) -> tuple[list[dict[str, Any]], App]:
    """What a front door sends a client, and the front door."""
    route = replace(BLUE, weight=100, timeout_ms=200.0, idempotent=idempotent)
    sent: list[dict[str, Any]] = []
    apps: list[App] = []

    async def ask() -> None:
        app = App(replace(TABLE, deployments=(route,)), client, _Library, str)
        apps.append(app)
        bodies = [{"type": "http.request", "body": b"{}"}]

        async def receive() -> Any:
            return bodies.pop() if bodies else await asyncio.Event().wait()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [(b"authorization", b"Bearer first")]
        scope = {"path": "/score", "method": "POST", "query_string": b"", "headers": headers}
        await asyncio.wait_for(app(scope, receive, send), 30)

    asyncio.run(ask())
    return sent, apps[0]


def test_the_only_replica_of_the_only_deployment_may_answer_itself() -> None:
    alone = replace(TABLE, deployments=(replace(BLUE, weight=100, backends=(ONE,)),))
    assert sole_replica(alone) == ONE
    only = alone.deployments[0]
    for other in (
        (BLUE,), (only, GREEN), (), (replace(only, weight=0),), (replace(only, idempotent=True),),
        (replace(only, backends=(replace(ONE, ready=False),)),), (replace(only, backends=()),),
    ):  # fmt: skip
        assert sole_replica(replace(alone, deployments=other)) is None


def test_silence_counts_from_the_first_word_on_and_is_told_once() -> None:
    silence = Silence()
    assert not silence.passed(100.0, 10.0)
    silence.end()
    assert not silence.passed(9.0, 10.0)
    silence.end()
    assert [silence.passed(4.0, 10.0) for _ in range(5)] == [False, False, True, False, False]


def test_a_first_word_may_take_longer_and_not_forever() -> None:
    silence = Silence(30.0)
    assert [silence.passed(20.0, 10.0) for _ in range(3)] == [False, True, False]


def test_what_several_say_is_one_report_and_what_was_counted_stays() -> None:
    one = Said(3, {"a": 1}, (Figures("blue", 10, 1, {"200": 9, "500": 1}, 2.0, p95_ms=5.0, waiting=1),))
    other = Said(2, {"a": 1, "b": 1}, (Figures("blue", 5, 0, {"200": 5}, 4.0, p95_ms=7.0), Figures("green", 1)))
    found = together([one, other], past(one.figures))
    assert (found.seen, found.open, found.waiting) == (2, {"a": 2, "b": 1}, 1)
    blue, green = found.figures
    assert (blue.requests, blue.failed, blue.codes, blue.rate) == (25, 2, {"200": 23, "500": 2}, 6.0)
    assert blue.p95_ms == 7.0 and green.requests == 1
    assert parse_said(found.line().strip()) == found and parse_said(found.line()[:-20]) is None


def test_a_line_to_those_who_answer_is_read_as_it_was_meant() -> None:
    sent = to_json(wire.RouteTable(4, "digits", "127.0.0.1", 1, ("k",), ""))
    found = told(telling(True, json.dumps(sent).encode()))
    assert found.accepts and found.table.version == 4
    assert not told(telling(False, json.dumps(sent).encode())).accepts


def test_a_table_of_a_newer_server_is_understood() -> None:
    given = to_json(wire.RouteTable(1, "digits", "127.0.0.1", 0, ("first",), "", ()))
    route = {**to_json(BLUE), "colour": "blue", "backends": [{**to_json(ONE), "region": "west"}]}
    found = parse({**given, "deployments": [route], "motto": "on"})
    assert found.deployments == (replace(BLUE, backends=(ONE,)),)
