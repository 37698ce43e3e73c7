"""The answers of the front door: who is let in, which deployment is asked, what is passed on."""

from __future__ import annotations

import asyncio
import http
import json
import random
import time
from typing import Any, Awaitable, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from muster.scoring.door.dispatch import Dispatcher, Refused
from muster.scoring.door.said import Figures
from muster.scoring.door.table import PIN, Backend, Route, Table, admits, chosen, mirrored
from muster.scoring.listening import HEADER_BYTES
from muster.scoring.serve.body import Gone, Receive, TooLarge, TooSlow, body_of

Send = Callable[[Any], Awaitable[None]]
Headers = List[Tuple[bytes, bytes]]

MAX_BODY = 512 << 20
_MOST_HEAD = HEADER_BYTES - (4 << 10)
"""Bytes of a request's address and headers: the limit of a replica, less what is added on the way."""
_CONNECT_S = 2.0
MOST_DEATHS = 5
"""How many replicas may die while they run a request before it is given up: it may be the cause."""
_MOST_COMING = 2 * MAX_BODY
"""Bytes of all bodies that are not complete yet."""
_AGAIN_S = 0.05
_AGAIN: Headers = [(b"retry-after", b"1")]
_LAST: Headers = [(b"connection", b"close")]
_OWN = frozenset(
    (
        b"host", b"connection", b"authorization", b"transfer-encoding", b"content-length", b"keep-alive", b"expect",
        b"te", b"trailer", b"upgrade", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection",
    )
)  # fmt: skip
"""Headers of a request or an answer that are between two neighbours, and not passed on."""
_MODEL_STATUS, _MODEL_REASON = b"ms-azureml-model-error-statuscode", b"ms-azureml-model-error-reason"
_BROKEN_OFF = 502
"""How an incomplete answer counts. It lacks its last chunk, and its connection ends: clients notice that."""
_PASSED_ON = (408, 429)
"""Codes of a replica that mean the same at the front door and are passed on."""


class Asked(NamedTuple):
    """One complete request."""

    method: str
    target: str
    headers: Headers
    body: bytes


class Here(NamedTuple):
    """The replica that runs in this process."""

    url: str
    key: str
    app: Callable[[Any, Receive, Send], Awaitable[None]]


class App:
    """One endpoint. `client` is an aiohttp session, which keeps connections to replicas; `library` its module.

    `here`: the replica in whose own process this runs; if it is the only one, it is asked without a connection.
    """

    def __init__(
        self, table: Table, client: Any, library: Any, make_url: Callable[[str], Any], here: Optional[Here] = None
    ) -> None:
        self._client = client
        self._library = library
        self._make_url = make_url
        self._here = here
        self.is_leaving = False
        """Others take the connections now: each of ours ends with its next answer, and the client connects to them."""
        self._coming = 0
        self._copies: Set["asyncio.Task[None]"] = set()
        self.dispatchers: Dict[str, Dispatcher] = {}
        self.table = table
        self.update(table)

    def update(self, table: Table) -> None:
        """Replace the table: from now on requests are routed by it."""
        self.table = table
        for route in table.deployments:
            if route.name in self.dispatchers:
                self.dispatchers[route.name].update(route)
            else:
                self.dispatchers[route.name] = Dispatcher(route)
        for name in set(self.dispatchers) - {route.name for route in table.deployments}:
            if not self.dispatchers[name].open:
                del self.dispatchers[name]

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        if self.is_leaving:
            send = _as_last(send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"] == "/" and scope["method"] in ("GET", "HEAD"):
            await _say(send, 200, b"Healthy", [(b"content-type", b"text/plain; charset=utf-8")])
            return
        if _head_bytes(scope) > _MOST_HEAD:
            await _refuse(send, 431, "the headers have more than {:,} bytes".format(_MOST_HEAD), _LAST)
            return
        if not admits(self.table, headers.get("authorization", ""), time.time()):
            await _refuse(send, 401, "a key or token of the endpoint is needed: Authorization: Bearer KEY")
            return
        pinned, drawn = headers.get(PIN), random.random()
        dispatcher, status = None, 499
        try:
            dispatcher = self._chosen(pinned, drawn)
            _check_room(dispatcher)
            body = await self._body(dispatcher.route, receive, headers)
            # A slow sender has not occupied a slot, and the table may have changed since.
            dispatcher = self._chosen(pinned, drawn)
            _check_room(dispatcher)
            place = _Place(dispatcher)
            try:
                status = await self._serve(dispatcher, scope, body, receive, place.left_with_the_end_of(send))
            finally:
                place.leave()
        except _Refusal as refusal:
            status = await _refuse(send, refusal.status, str(refusal), refusal.headers)
        except Gone:
            pass
        finally:
            if dispatcher is not None:
                dispatcher.traffic.note(status, time.monotonic() - began)

    def _chosen(self, pinned: Optional[str], drawn: float) -> Dispatcher:
        """The deployment that answers; raises _Refusal if there is none."""
        route = chosen(self.table, pinned, drawn)
        if route is None:
            raise _Refusal(404, _nowhere(self.table, pinned))
        return self.dispatchers[route.name]

    async def _body(self, route: Route, receive: Receive, headers: Mapping[str, str]) -> bytes:
        """The whole body; raises _Refusal. The bytes received so far count towards the limit for all bodies."""
        came = 0

        async def counted() -> Any:
            nonlocal came
            message = await receive()
            size = len(message.get("body", b""))
            came += size
            self._coming += size
            if self._coming > _MOST_COMING:
                raise _Refusal(429, "too many large bodies are on their way", [*_AGAIN, *_LAST])
            return message

        try:
            return await body_of(counted, headers, MAX_BODY, route.timeout_ms / 1000)
        except TooLarge:
            raise _Refusal(413, "the body has more than {:,} bytes".format(MAX_BODY), _LAST) from None
        except TooSlow:
            raise _Refusal(408, "the body did not come within {:g} ms".format(route.timeout_ms), _LAST) from None
        finally:
            self._coming -= came

    async def _serve(self, dispatcher: Dispatcher, scope: Any, body: bytes, receive: Receive, send: Send) -> int:
        route = dispatcher.route
        query = scope["query_string"].decode("latin-1")
        target = scope.get("raw_path", scope["path"].encode()).decode("latin-1") + ("?" + query if query else "")
        kept = passed_on(scope["headers"])
        asked = Asked(scope["method"], target, kept, body)
        self._mirror(route, asked)
        if self._here is not None and [backend.url for backend in route.backends] == [self._here.url]:
            return await self._answer_here(self._here, dispatcher, asked, scope, receive, send)
        # When a client goes away its request ends: the replica notices and does not run it.
        work = asyncio.ensure_future(self._pass_on(dispatcher, asked, send))
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                raise Gone
            return await work
        finally:
            gone.cancel()

    def _mirror(self, route: Route, asked: Asked) -> None:
        other = mirrored(self.table, route, random.random())
        if other is None:
            return
        copy = asyncio.ensure_future(self._copy(self.dispatchers[other.name], asked))
        self._copies.add(copy)
        copy.add_done_callback(self._copies.discard)

    async def _copy(self, dispatcher: Dispatcher, asked: Asked) -> None:
        """Send the same request to another deployment and drop its answer."""
        if dispatcher.open >= dispatcher.route.most_open:
            return
        began, status = time.monotonic(), 500
        dispatcher.open += 1

        async def ignore(_: Any) -> None:
            return None

        try:
            status = await self._pass_on(dispatcher, asked, ignore)
        finally:
            dispatcher.open -= 1
            dispatcher.traffic.note(status, time.monotonic() - began)

    async def _pass_on(self, dispatcher: Dispatcher, asked: Asked, send: Send) -> int:
        """Have a replica answer; returns the code. If one dies during a request, another is asked where allowed."""
        loop, route, died = asyncio.get_running_loop(), dispatcher.route, 0
        deadline = loop.time() + route.timeout_ms / 1000
        while True:
            try:
                backend = await dispatcher.acquire(deadline)
            except Refused as error:
                return await _refuse(send, 429, "{}: {}".format(route.name, error), _AGAIN)
            except asyncio.TimeoutError:
                return await _refuse(send, 503, _none_there(dispatcher.route), _AGAIN)
            outcome = Outcome()
            try:
                asking = self._ask(backend, asked, send, deadline - loop.time(), outcome)
                return await dispatcher.inside(backend, asking)
            except asyncio.TimeoutError:
                if outcome.unreached:
                    dispatcher.doubt(backend)
                if outcome.begun:
                    return _BROKEN_OFF
                if outcome.unreached and loop.time() + _AGAIN_S < deadline:
                    continue
                if outcome.unreached:
                    return await _refuse(send, 503, "no replica of {} is there".format(route.name))
                said = "{} gave no answer within {:g} ms".format(route.name, route.timeout_ms)
                return await _refuse(send, 408, said)
            except self._library.ClientConnectorError:
                # Nothing was sent: another replica, or the same one a moment later, may take it.
                dispatcher.doubt(backend)
                if loop.time() + _AGAIN_S >= deadline:
                    return await _refuse(send, 503, "no replica of {} is there".format(route.name))
                await asyncio.sleep(_AGAIN_S)
            except (self._library.ClientError, OSError):
                if outcome.begun:
                    return _BROKEN_OFF
                # Its listener is kept for its successor, and requests that arrive there wait for that one.
                dispatcher.doubt(backend)
                died += 1
                if not route.idempotent:
                    said = "the replica of {} that had the request ended before it answered".format(route.name)
                    return await _refuse(send, 502, said)
                if died >= MOST_DEATHS:
                    said = "{} replicas of {} that had the request ended before they answered".format(died, route.name)
                    return await _refuse(send, 502, said)
            except ValueError as error:
                return await _refuse(send, 400, "the request cannot be passed on: {}".format(error))
            finally:
                dispatcher.release(backend)

    async def _answer_here(
        self, here: Here, dispatcher: Dispatcher, asked: Asked, scope: Any, receive: Receive, send: Send
    ) -> int:
        """Have the replica in this process answer; returns the code."""
        deadline = asyncio.get_running_loop().time() + dispatcher.route.timeout_ms / 1000
        try:
            backend = await dispatcher.acquire(deadline)
        except Refused as error:
            return await _refuse(send, 429, "{}: {}".format(dispatcher.route.name, error), _AGAIN)
        except asyncio.TimeoutError:
            return await _refuse(send, 503, _none_there(dispatcher.route), _AGAIN)
        status, body = 499, [asked.body]

        async def given() -> Any:
            return {"type": "http.request", "body": body.pop()} if body else await receive()

        async def outward(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, extra = _outward(message["status"], _phrase(message["status"]))
                message = {**message, "status": status, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            headers = [*asked.headers, (b"authorization", "Bearer {}".format(here.key).encode())]
            await here.app({**scope, "headers": headers}, given, outward)
            return status
        finally:
            dispatcher.release(backend)

    async def _ask(self, backend: Backend, asked: Asked, send: Send, left_s: float, outcome: "Outcome") -> int:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in asked.headers]
        headers.append(("Authorization", "Bearer {}".format(backend.key)))
        answering = self._client.request(
            asked.method, self._make_url(backend.url + asked.target), data=asked.body or None, headers=headers,
            allow_redirects=False, timeout=self._library.ClientTimeout(sock_connect=min(_CONNECT_S, left_s / 2)),
        )  # fmt: skip
        try:
            response = await asyncio.wait_for(answering, max(0.001, left_s))
        except self._library.ServerTimeoutError:
            # No connection was made in time: the node is away.
            outcome.unreached = True
            raise
        try:
            status, extra = _outward(response.status, response.reason or "")
            listed = passed_on(response.raw_headers) + extra
            length = response.headers.get("content-length")
            # The front door adds its own.
            listed = [(name, value) for name, value in listed if name != b"date"]
            if length is not None:
                # The usual case: complete, so that a replica that dies in the middle leaves nobody with half an answer.
                whole = await asyncio.wait_for(response.read(), max(0.001, left_s))
                outcome.begun = True
                await _say(send, status, whole if asked.method != "HEAD" else b"", listed)
                return status
            outcome.begun = True
            await send({"type": "http.response.start", "status": status, "headers": listed})
            async for piece in response.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return status
        finally:
            response.release()

    def figures(self) -> List[Figures]:
        """The figures of each deployment."""
        found = []
        for name, dispatcher in self.dispatchers.items():
            traffic = dispatcher.traffic
            p50, p95, p99 = traffic.latency_ms.percentiles(0.5, 0.95, 0.99)
            codes = {str(code): count for code, count in sorted(traffic.codes.items())}
            failed = sum(count for code, count in traffic.codes.items() if code >= 400 and code != 499)
            queue_p95 = traffic.queue_ms.percentiles(0.95)[0]
            found.append(
                Figures(
                    name, sum(traffic.codes.values()), failed, codes, traffic.rate, p50, p95, p99, queue_p95,
                    dispatcher.open, dispatcher.waiting,
                )
            )  # fmt: skip
        return found

    def open_by_address(self) -> Dict[str, int]:
        """Requests inside replicas, by the replica's address."""
        found: Dict[str, int] = {}
        for dispatcher in self.dispatchers.values():
            for url, count in dispatcher.open_on_run().items():
                found[url] = found.get(url, 0) + count
        return found


class Outcome:
    """Whether a part of an answer has reached the client: from then on nothing can be retried."""

    begun = False
    unreached = False
    """No part of the request has reached a replica."""


class _Place:
    """The slot of one request among those that a deployment takes at once."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher: Optional[Dispatcher] = dispatcher
        dispatcher.open += 1

    def leave(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.open -= 1
            self._dispatcher = None

    def left_with_the_end_of(self, send: Send) -> Send:
        """Free the slot with the last piece: a client with the whole answer may ask again at once and find it free."""

        async def work(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self.leave()
            await send(message)

        return work


class _Refusal(Exception):
    """A request that is not passed on to any replica."""

    def __init__(self, status: int, message: str, headers: Optional[Headers] = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def _check_room(dispatcher: Dispatcher) -> None:
    if dispatcher.open >= dispatcher.route.most_open:
        said = "{} requests are under way, as many as deployment {} takes"
        raise _Refusal(429, said.format(dispatcher.open, dispatcher.route.name), _AGAIN)


def _head_bytes(scope: Any) -> int:
    size = len(scope["path"]) + len(scope["query_string"])
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4
    return size


def _outward(status: int, reason: str) -> Tuple[int, Headers]:
    """A replica's code as the endpoint answers it: other than success it is the model's, 424, with its code added."""
    if status < 400 or status in _PASSED_ON:
        return status, []
    return 424, [(_MODEL_STATUS, str(status).encode()), (_MODEL_REASON, reason.encode("latin-1", "replace"))]


def _none_there(route: Route) -> str:
    if route.sleeps:
        return "{} had no replica: one is being started, and was not ready within {:g} ms".format(
            route.name, route.timeout_ms
        )
    return "no replica of {} is there".format(route.name)


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def _as_last(send: Send) -> Send:
    async def work(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_LAST]}
        await send(message)

    return work


def _nowhere(table: Table, pinned: Optional[str]) -> str:
    names = ", ".join(route.name for route in table.deployments) or "none"
    if pinned:
        return "endpoint {} has no deployment {}; it has: {}".format(table.endpoint, pinned, names)
    if not table.deployments:
        return "endpoint {} has no deployment".format(table.endpoint)
    return "no deployment of {} has traffic (deployments: {}); `muster endpoint traffic {} {}=100` gives it".format(
        table.endpoint, names, table.endpoint, table.deployments[0].name
    )


def passed_on(headers: Sequence[Tuple[bytes, bytes]]) -> Headers:
    """The headers to pass on: all but those between two neighbours, including those that they name themselves."""
    lowered = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in lowered if name == b"connection" for word in value.split(b",")}
    return [(name, value) for name, value in lowered if name not in _OWN and name not in named]


async def _refuse(send: Send, status: int, message: str, headers: Optional[Headers] = None) -> int:
    body = json.dumps({"message": message}).encode()
    await _say(send, status, body, [(b"content-type", b"application/json"), *(headers or [])])
    return status


async def _say(send: Send, status: int, body: bytes, headers: Headers) -> None:
    listed = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
