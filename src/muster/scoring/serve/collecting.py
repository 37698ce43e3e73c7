"""Collected requests and answers: a sample, as JSON lines, sent to the workspace by a separate thread.

Nothing here delays a request: events that cannot be sent in time are dropped, and counted.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import threading
import time
import types
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Tuple

from muster.scoring.link import Link, Refused, Unreachable
from muster.scoring.serve.body import Receive
from muster.scoring.serve.http import Answer, json_value
from muster.scoring.serve.settings import Settings

REQUEST, RESPONSE = "request", "response"
_FOLDERS = {"minute": "%Y/%m/%d/%H/%M", "hour": "%Y/%m/%d/%H", "day": "%Y/%m/%d", "month": "%Y/%m", "year": "%Y"}
_SEND_S = 5.0
_AGAIN_S = 2.0
_CLOSE_S = 5.0
_MOST_SENT = 1 << 20
"""Bytes of one file; a line may be longer, up to the limit of one payload."""
_MOST_PAYLOAD = 1 << 20
_MOST_LINE = 2 << 20
_MOST_WAITING = 32 << 20


class Line(NamedTuple):
    """One event to be sent."""

    collection: str
    folder: str
    text: str


@dataclass(frozen=True)
class Event:
    """The data that is kept of one request, answer or table."""

    datacontenttype: str
    contentrange: str
    data: Any = None
    data_base64: str = ""
    path: str = ""
    method: str = ""
    statuscode: int = 0
    correlationid: str = ""
    xrequestid: str = ""
    collectdatatype: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> List[Tuple[str, Any]]:
        """The fields that have a value."""
        kept = "data_base64" if self.data_base64 else "data"
        return [(name, value) for name, value in vars(self).items() if value or name == kept]


class File:
    """Lines that are sent as one file. It only grows, and is sent again with each new line until it is large enough."""

    def __init__(self, collection: str, folder: str) -> None:
        self.collection = collection
        self.folder = folder
        self.id = uuid.uuid4().hex
        self.lines: List[str] = []
        self.sent = 0

    @property
    def is_full(self) -> bool:
        return sum(map(len, self.lines)) >= _MOST_SENT


class Book:
    """Events that wait to be sent, up to a limit; sent by a thread."""

    def __init__(self, settings: Settings, link: Optional[Link] = None) -> None:
        self._settings = settings
        self._link = link or Link()
        self._waiting: Deque[Line] = deque()
        self._bytes = 0
        self._files: Dict[Tuple[str, str], File] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.captured_headers = tuple(name.lower() for name in settings.captured_headers)
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="collecting", daemon=True)
        self._thread.start()

    def has(self, collection: str) -> bool:
        return collection in self._settings.collections

    def is_sampled(self) -> bool:
        """Whether the next request is one of those that are kept."""
        return random.random() < self._settings.sampling_rate

    def add(self, collection: str, event: Event) -> None:
        """Keep an event if there is room."""
        now = time.gmtime()
        settings = self._settings
        whole = {
            "specversion": "1.0", "id": str(uuid.uuid4()),
            "source": "/onlineEndpoints/{}/deployments/{}".format(settings.endpoint, settings.deployment),
            "type": "azureml.inference.{}".format(collection.replace("model_", "")),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", now), "modelversion": settings.version,
            "agent": "muster", **dict(event.fields()),
        }  # fmt: skip
        text = _line_of(whole)
        with self._lock:
            if self._bytes + len(text) > _MOST_WAITING:
                self.dropped += 1
                return
            self._bytes += len(text)
            self._waiting.append(Line(collection, time.strftime(_FOLDERS[settings.rolling_rate], now), text))

    def close(self) -> None:
        """Send what is left, unless that takes long."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        told = 0
        while True:
            is_last = self._closing.wait(_SEND_S)
            while self._waiting:
                self._sort_in()
                for file in list(self._files.values()):
                    self._send(file)
            if self.dropped != told:
                told = self.dropped
                print("muster: {:,} events were not collected: too many at once".format(told), file=sys.stderr)
            if is_last:
                return

    def _sort_in(self) -> None:
        """Put the waiting events into their files, until one of the files is full."""
        while self._waiting:
            with self._lock:
                line = self._waiting.popleft()
                self._bytes -= len(line.text)
            key = line.collection, line.folder
            file = self._files.setdefault(key, File(*key))
            file.lines.append(line.text)
            if file.is_full:
                return

    def _send(self, file: File) -> None:
        """Retry until the file has arrived. A full file, or one without new lines, is closed."""
        is_new = len(file.lines) > file.sent
        while is_new:
            is_last = self._closing.is_set()
            try:
                message = {"file_id": file.id, "collection": file.collection, "date": file.folder, "lines": file.lines}
                self._link.call("POST", "serving/collected", message)
                file.sent = len(file.lines)
                break
            except Unreachable as error:
                if is_last or isinstance(error, Refused):
                    left, file.sent = len(file.lines) - file.sent, len(file.lines)
                    print("muster: {} events were not collected: {}".format(left, error), file=sys.stderr)
                    is_new = not isinstance(error, Refused)
                    break
                self._closing.wait(_AGAIN_S)
        if file.is_full or not is_new:
            del self._files[file.collection, file.folder]


def _line_of(event: Mapping[str, Any]) -> str:
    """An event as a line; without its data if that is nested too deeply, or is too large once escaped."""
    try:
        text = json.dumps(event, default=json_value)
        if len(text) <= _MOST_LINE:
            return text
    except RecursionError:
        pass
    return json.dumps({**event, "data": None}, default=json_value)


class Sample:
    """One request whose payload is kept."""

    def __init__(self, book: Book, method: str, path: str, headers: Mapping[str, str], receive: Receive) -> None:
        self._book = book
        self._path = path
        self._method = method
        self._headers = headers
        self._receive = receive
        self._body: List[bytes] = []
        self._size = 0

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.request" and message.get("body"):
            self._size += len(message["body"])
            # A body that is too large to be kept is only counted.
            if self._size <= _MOST_PAYLOAD:
                self._body.append(message["body"])
            else:
                self._body.clear()
        return message

    def end(self, answer: Answer, request_id: str) -> None:
        """Keep the request with its answer."""
        common = Event("", "", None, "", self._path, self._method, 0, request_id, request_id)
        if self._book.has(REQUEST):
            body = b"".join(self._body) if self._size <= _MOST_PAYLOAD else None
            found = payload(body, self._headers.get("content-type", "application/json"), common, self._size)
            names = self._book.captured_headers
            captured = {name: self._headers[name] for name in names if name in self._headers}
            self._book.add(REQUEST, replace(found, headers=captured))
        if self._book.has(RESPONSE):
            given = answer.body if answer.stream is None else None
            found = payload(given, answer.headers.get("content-type", "application/json"), common)
            self._book.add(RESPONSE, replace(found, statuscode=answer.status))


def payload(body: Optional[bytes], kind: str, event: Event, length: int = 0) -> Event:
    """An event with a body: JSON as it is, text, or bytes in base64; without it if it is too large.

    `length`: the length of a body that is not there, if it is known.
    """
    if body is None or len(body) > _MOST_PAYLOAD:
        size = str(length or "*") if body is None else str(len(body))
        return replace(event, datacontenttype=kind, contentrange="bytes */{}".format(size))
    whole = "bytes 0-{}/{}".format(max(0, len(body) - 1), len(body))
    found = replace(event, datacontenttype=kind, contentrange=whole)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return replace(found, data_base64=base64.b64encode(body).decode())
    try:
        return replace(found, data=json.loads(text))
    except (ValueError, RecursionError):
        return replace(found, data=text)


class Context:
    """Links collected outputs to their inputs."""

    def __init__(self, sampled: bool) -> None:
        self._id = str(uuid.uuid4())
        self.sampled = sampled

    def get_id(self) -> str:
        return self._id


class Collector:
    """Collects tables from a script: `azureml.ai.monitoring.Collector`, with the same calls."""

    book: Optional[Book] = None

    def __init__(self, name: str, on_error: Optional[Callable[[Exception], Any]] = None, **kwargs: Any) -> None:
        self._name = name
        self._on_error = on_error

    def collect(self, data: Any, correlation_context: Optional[Context] = None) -> Context:
        """Keep a pandas DataFrame; returns the context that links others to it."""
        book = Collector.book
        context = correlation_context or Context(book is not None and book.is_sampled())
        try:
            if not hasattr(data, "to_json") or not hasattr(data, "columns"):
                raise TypeError("only pandas DataFrames are collected, and this is a {}".format(type(data).__name__))
            if book is not None and book.has(self._name) and context.sampled:
                _keep(book, self._name, data, context)
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(error)
        return context


def _keep(book: Book, name: str, data: Any, context: Context) -> None:
    text = data.to_json(orient="records")
    tied = context.get_id()
    event = Event("", "", correlationid=tied, xrequestid=tied, collectdatatype="pandas.core.frame.DataFrame")
    book.add(name, payload(text.encode(), "application/json", event))


def install(book: Optional[Book]) -> None:
    """Let scripts import `azureml.ai.monitoring`; without collections it keeps nothing."""
    Collector.book = book
    parents: List[str] = []
    for part in ("azureml", "ai", "monitoring"):
        parents.append(part)
        name = ".".join(parents)
        if name not in sys.modules:
            made = types.ModuleType(name)
            made.__path__ = []
            sys.modules[name] = made
    vars(sys.modules["azureml.ai.monitoring"]).update({"Collector": Collector, "CorrelationContext": Context})
