"""The routes of a replica: Azure ML's inference server, the Open Inference Protocol v2, `v1/models/…:predict`."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import uuid
from typing import Any, Awaitable, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import parse_qsl

from muster.scoring.frames import Value
from muster.scoring.listening import GONE
from muster.scoring.origins import Origins
from muster.scoring.serve import description, oip
from muster.scoring.serve.batching import Full, Outcome, Runner
from muster.scoring.serve.body import BadInput, Gone, Receive, TooLarge, TooSlow, body_of
from muster.scoring.serve.collecting import REQUEST, RESPONSE, Book, Sample
from muster.scoring.serve.http import Answer, Request, answer_of, check_sendable, json_value
from muster.scoring.serve.mlflow_requests import answer_of as mlflow_answer
from muster.scoring.serve.mlflow_requests import json_of_csv
from muster.scoring.serve.models import Model
from muster.scoring.serve.settings import Settings
from muster.scoring.serve.streaming import Broken, Stream

Send = Callable[[Any], Awaitable[None]]

_JSON = {"content-type": "application/json"}
_TEXT = {"content-type": "text/plain; charset=utf-8"}
_LAST = {"connection": "close"}
_MOST_ID = 100
_SERVER_VERSION = b"muster"
_GONE, _LATE = Outcome(None), Outcome(None)
"""In place of the model's answer: the client went away, or its time was over."""


class Asked(NamedTuple):
    """The head of a request."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    gone: "Optional[asyncio.Future[Any]]" = None
    """Done once the client has closed its connection; None: `receive` reports it."""


class App:
    """The answers of one replica. Plain ASGI: nothing else is between the listener and the model."""

    def __init__(self, settings: Settings, model: Model, runner: Runner, book: Optional[Book] = None) -> None:
        self._book = book if book is not None and (book.has(REQUEST) or book.has(RESPONSE)) else None
        self._settings = settings
        self._model = model
        self._runner = runner
        self._key = os.environ.get("SERVE_KEY", "")
        self._origins = Origins()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        asked = Asked(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers, scope.get(GONE))
        sample = self._sample(asked, receive)
        try:
            answer = await self._answer(asked, receive if sample is None else sample.receive)
        except Gone:
            return
        ids = _ids(headers)
        if sample is not None:
            sample.end(answer, ids["x-request-id"])
        said = {**ids, **self._origins.headers(headers), **answer.headers}
        listed = [(name.encode("latin-1"), str(value).encode("latin-1")) for name, value in said.items()]
        listed.append((b"x-ms-server-version", _SERVER_VERSION))
        if answer.stream is not None:
            await _send_pieces(answer, listed, receive, send)
            return
        listed.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": listed})
        await send({"type": "http.response.body", "body": b"" if asked.method == "HEAD" else answer.body})

    def _sample(self, asked: Asked, receive: Receive) -> Optional[Sample]:
        """The request as a sample, if it is one of those that are kept."""
        if self._book is None or asked.method != "POST" or not self._book.is_sampled():
            return None
        return Sample(self._book, asked.method, asked.path, asked.headers, receive)

    async def _answer(self, asked: Asked, receive: Receive) -> Answer:
        method, path, headers = asked.method, asked.path.rstrip("/") or "/", asked.headers
        if path == "/" and method in ("GET", "HEAD"):
            return Answer(200, b"Healthy", _TEXT)
        if len(headers.get("x-ms-request-id", "")) > _MOST_ID or len(headers.get("x-request-id", "")) > _MOST_ID:
            return _refused(431, "x-ms-request-id and x-request-id may have at most {} characters".format(_MOST_ID))
        if (allowed := self._origins.preflight(method, headers)) is not None:
            return Answer(200, b"", allowed)
        if not self._admitted(headers):
            return _refused(401, "a key is needed: Authorization: Bearer KEY")
        if path in ("/ping", "/health", "/version") and method == "GET" and self._model.mlflow_version:
            return Answer(200, self._model.mlflow_version.encode() if path == "/version" else b"\n", _TEXT)
        if path in ("/score", "/invocations"):
            answer = await self._score(asked, receive)
            return mlflow_answer(answer) if path == "/invocations" and self._model.mlflow_version else answer
        if path == "/swagger.json" and method == "GET":
            return _swagger(dict(parse_qsl(asked.query)).get("version", "2"), self._settings, self._model)
        if path.startswith(("/v1/", "/v2")):
            return await self._protocol(asked, path, receive)
        return _refused(404, "there is no {}; requests go to /score".format(path))

    def _admitted(self, headers: Mapping[str, str]) -> bool:
        if not self._key:
            return True
        return hmac.compare_digest(headers.get("authorization", "").encode(), "Bearer {}".format(self._key).encode())

    async def _score(self, asked: Asked, receive: Receive) -> Answer:
        method, query = asked.method, asked.query
        if method == "OPTIONS":
            return Answer(200, b"", {"allow": "GET, POST, OPTIONS"})
        if method not in ("GET", "POST"):
            return _refused(405, "{} is not taken here; POST is".format(method), {"allow": "GET, POST, OPTIONS"})
        if method == "POST" and self._model.schema is not None and not _is_json(asked.headers):
            said = "run() takes a JSON object: send it with the header Content-Type: application/json"
            return _refused(415, said, _LAST)
        try:
            body = await self._body(asked, receive)
        except _Untaken as untaken:
            return _refused(untaken.status, str(untaken), _LAST)
        if self._model.is_raw:
            return await self._run(Request(method, asked.path, query, asked.headers, body), asked, receive)
        try:
            text = _query_json(query) if method == "GET" else body.decode("utf-8")
            if self._model.mlflow_version and asked.headers.get("content-type", "").startswith("text/csv"):
                text = json_of_csv(text)
        except UnicodeDecodeError:
            return _refused(400, "the body is no text in UTF-8")
        except BadInput as error:
            return _refused(400, str(error))
        return await self._run(text, asked, receive)

    async def _protocol(self, asked: Asked, path: str, receive: Receive) -> Answer:
        route = oip.route_of(asked.method, path, self._settings.name, self._settings.version)
        if isinstance(route, Answer):
            return route
        try:
            length = asked.headers.get("inference-header-content-length", "")
            request = oip.parse(await self._body(asked, receive), route, length)
        except _Untaken as untaken:
            return oip.refused(untaken.status, str(untaken), _LAST)
        except BadInput as error:
            return oip.refused(400, str(error))
        answer = await self._run(request.text, asked, receive)
        if answer.stream is not None:
            answer.stream.close()
            return oip.refused(500, "run() answers in pieces, which only /score passes on")
        return oip.answer_of(answer, request, self._settings)

    async def _body(self, asked: Asked, receive: Receive) -> bytes:
        most, wait_ms = self._settings.max_body, self._settings.timeout_ms
        try:
            return await body_of(receive, asked.headers, most, wait_ms / 1000)
        except TooLarge:
            raise _Untaken(413, "the body has more than {:,} bytes".format(most)) from None
        except TooSlow:
            raise _Untaken(408, "the body did not come within {:g} ms".format(wait_ms)) from None

    async def _run(self, data: Any, asked: Asked, receive: Receive) -> Answer:
        """Have the model answer, within the time limit and as long as the client waits for it."""
        try:
            waiting = self._runner.submit(data, asked.headers)
        except Full:
            return _refused(429, "{:,} requests wait already".format(self._settings.max_queue), {"retry-after": "1"})
        gone = asked.gone or asyncio.ensure_future(receive())

        def leave(_: "asyncio.Future[Any]") -> None:
            waiting.give_up(_GONE)

        gone.add_done_callback(leave)
        alarm = asyncio.get_running_loop().call_later(self._settings.timeout_ms / 1000, waiting.give_up, _LATE)
        try:
            outcome = await waiting.done
        except asyncio.CancelledError:
            waiting.abandoned = True
            raise
        finally:
            alarm.cancel()
            gone.remove_done_callback(leave)
            if gone is not asked.gone:
                gone.cancel()
        if outcome is _GONE:
            raise Gone
        if outcome is _LATE:
            return _refused(408, "no answer within {:g} ms".format(self._settings.timeout_ms), _failed("true"))
        return _outcome(outcome)


class _Untaken(Exception):
    """A body that is not accepted; the rest of it is not read."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def _send_pieces(answer: Answer, headers: List[Tuple[bytes, bytes]], receive: Receive, send: Send) -> None:
    """Send an answer as it comes. An incomplete one lacks its last chunk: clients notice that."""
    stream = answer.stream
    gone: "asyncio.Future[Any]" = asyncio.ensure_future(receive())
    gone.add_done_callback(lambda _: stream.close())
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in stream.taken():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except Broken:
        pass
    finally:
        gone.cancel()


def _outcome(outcome: Outcome) -> Answer:
    took = {"x-ms-run-fn-exec-ms": "{:.3f}".format(outcome.took_s * 1000)}
    if isinstance(outcome.value, Stream):
        return _begun(outcome.value, took)
    if isinstance(outcome.error, BadInput):
        return _refused(400, str(outcome.error), {**_failed("true"), **took})
    if outcome.error is not None:
        said = "{}: {}".format(type(outcome.error).__name__, outcome.error)
        return _refused(500, said, {**_failed("true"), **took})
    try:
        answer = answer_of(outcome.value)
        check_sendable(answer)
    except (TypeError, ValueError, RecursionError) as error:
        return _refused(500, "the result cannot be sent: {}".format(error), {**_failed("true"), **took})
    answer.headers = {**_failed("false"), **took, **answer.headers}
    return answer


def _begun(stream: Stream, took: Mapping[str, str]) -> Answer:
    answer = Answer(stream.status, b"", {**_failed("false"), **took, **stream.headers}, stream)
    try:
        check_sendable(answer)
    except ValueError as error:
        stream.close()
        return _refused(500, "the result cannot be sent: {}".format(error), {**_failed("true"), **took})
    return answer


def _failed(word: str) -> Dict[str, str]:
    return {"x-ms-run-function-failed": word}


def _refused(status: int, message: str, headers: Optional[Mapping[str, str]] = None) -> Answer:
    return Answer(status, json.dumps({"message": message}).encode(), {**_JSON, **(headers or {})})


def _ids(headers: Mapping[str, str]) -> Dict[str, str]:
    given = headers.get("x-request-id") or headers.get("x-ms-request-id")
    found = {"x-request-id": given[:_MOST_ID] if given else uuid.uuid4().hex}
    found["x-ms-request-id"] = found["x-request-id"]
    for name in ("x-ms-client-request-id", "traceid"):
        if name in headers:
            found[name] = headers[name][:_MOST_ID]
    return found


def _query_json(query: str) -> str:
    """Query parameters as JSON text, each value parsed if it is JSON; repeated ones as a list."""
    found: Dict[str, Value] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        try:
            plain: Value = json.loads(value)
        except (ValueError, RecursionError):
            plain = value
        if name in found:
            known = found[name]
            found[name] = [*known, plain] if isinstance(known, list) else [known, plain]
        else:
            found[name] = plain
    return json.dumps(found)


def _swagger(version: str, settings: Settings, model: Model) -> Answer:
    try:
        file = description.file_of(version)
        if file is None:
            told = description.described(version, settings.name, settings.version, model.schema)
            return Answer(200, json.dumps(told, default=json_value).encode(), _JSON)
    except description.NoDescription as error:
        return _refused(404, str(error))
    with open(file, "rb") as found:
        return Answer(200, found.read(), _JSON)


def _is_json(headers: Mapping[str, str]) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
