"""Requests to one server. Idempotent ones are retried when the server went away."""

from __future__ import annotations

import hashlib
import http.client
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TypedDict, TypeVar, Unpack

from muster.client.sse import SseParser, StreamItem
from muster.errors import JobError, MusterError, NotFound, ServerUnavailable
from muster.host.files import is_safe_name, replacing
from muster.host.http import Address, Body, PerThread
from muster.host.server import ServerConnection
from muster.wire.codec import Json, WireError, from_json, to_json

API = "/api/v1"
PIECE_BYTES = 1 << 20
PAGE = 1000
"""How many items of a list one request fetches."""
LONG_S = 600.0
"""The timeout of a call that moves much data."""
RETRY_PAUSES_S = (0.0, 0.2, 1.0)
_STREAM_SILENCE_S = 35.0

T = TypeVar("T")
Progress = Callable[[int], None]
"""Called with the size of each piece."""
Query = Mapping[str, str | int | float | Sequence[str] | None]


def unwatched(_size: int) -> None:
    """A progress callback that does nothing."""


class _Plain(TypedDict, total=False):
    body: Body
    query: Query | None
    headers: Mapping[str, str]
    timeout_s: float


class Request(_Plain, total=False):
    """Body and options of a request."""

    message: object
    again: bool


class Calls:
    """Talks to one server; may be shared between threads.

    `reconnect` finds the server again (and starts an embedded one) when it does not answer.
    """

    def __init__(self, address: Address, reconnect: Callable[[], Address] | None = None) -> None:
        self.address = address
        self._reconnect = reconnect
        self._connections = PerThread(_HeldConnection)

    def read(self, kind: type[T], method: str, path: str, **request: Unpack[Request]) -> T:
        """The answer to a request as a message."""
        try:
            return from_json(kind, self.send(method, path, **request))
        except WireError as error:
            raise _unreadable(path, error) from error

    def each(
        self, kind: type[T], path: str, query: Query | None = None, most: int | None = None, page: int = PAGE
    ) -> Iterator[T]:
        """The items of a list, page by page: at most `most`, or all of them."""
        cursor: str | None = None
        left = most
        while left is None or left > 0:
            page_query = {**(query or {}), "limit": page if left is None else min(left, page), "cursor": cursor}
            found = self.read(list[kind], "GET", path, query=page_query)  # type: ignore[valid-type]
            yield from found
            cursor = self._connections.to(self.address).next_page
            if cursor is None:
                return
            left = None if left is None else left - len(found)

    def first_page(self, kind: type[T], path: str, query: Query) -> tuple[list[T], int | None]:
        """The first items of a list, and how many it has in all; None: no more than these."""
        found = self.read(list[kind], "GET", path, query=query)  # type: ignore[valid-type]
        return found, self._connections.to(self.address).total

    def send(
        self, method: str, path: str, *, message: object = None, again: bool = True, **request: Unpack[_Plain]
    ) -> Json:
        """Send a request and return its JSON; with `again` it may reach the server twice."""
        json_body = None if message is None else to_json(message)
        for attempt, pause_s in enumerate(RETRY_PAUSES_S, 1):
            time.sleep(pause_s)
            connection = self._connections.to(self.address)
            try:
                answer: Json = connection.request(method, API + path, json_body=json_body, **request)
                return answer
            except (ServerUnavailable, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                connection.close()
                if not again or attempt == len(RETRY_PAUSES_S):
                    raise _unavailable(error) from error
                self.find_again()
            except BaseException:
                # Ctrl-C in the middle of a response: its rest must not be taken for the next one.
                connection.close()
                raise
        raise AssertionError("unreachable")

    def events(self, path: str, query: Query) -> Iterator[StreamItem]:
        """Server-sent events as they arrive."""
        parser = SseParser()
        try:
            with (
                closing(ServerConnection(self.address, _STREAM_SILENCE_S)) as connection,
                connection.stream("GET", API + path, query=query) as response,
            ):
                while chunk := response.read1(PIECE_BYTES):
                    yield from parser.feed(chunk)
        except WireError as error:
            raise _unreadable(path, error) from error

    @contextmanager
    def open(
        self, path: str, headers: Mapping[str, str], query: Query | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The response while it arrives, on a connection of its own."""
        with (
            closing(ServerConnection(self.address)) as connection,
            connection.stream("GET", API + path, headers=headers, query=query) as response,
        ):
            yield response

    def whole(self, path: str, query: Query) -> bytes:
        """A whole response that is not JSON."""
        for attempt, pause_s in enumerate(RETRY_PAUSES_S, 1):
            time.sleep(pause_s)
            try:
                with self.open(path, {}, query) as response:
                    return response.read()
            except (ServerUnavailable, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if attempt == len(RETRY_PAUSES_S):
                    raise _unavailable(error) from error
                self.find_again()
        raise AssertionError("unreachable")

    def download(self, path: str, target: Path, progress: Progress = unwatched, sha256: str | None = None) -> None:
        """Download a file to `target` atomically; verified where its hash is known."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, mode=0o644) as out:
            found = self._fetch(path, out, progress, sha256 is not None)
            if found != (sha256 or ""):
                raise MusterError(
                    f"{path.lstrip('/')} has changed: sha256 {found}, {sha256} is known",
                    "Something wrote to its place: make a new version of it.",
                )

    def _fetch(self, path: str, out: IO[bytes], progress: Progress, is_hashed: bool) -> str:
        """Write a whole file and return its hash if wanted; resumes after a broken connection."""
        digest = hashlib.sha256()
        for attempt, pause_s in enumerate(RETRY_PAUSES_S, 1):
            time.sleep(pause_s)
            begin = out.tell()
            try:
                with self.open(path, {"Range": f"bytes={begin}-"} if begin else {}) as response:
                    if begin and response.status != 206:
                        out.seek(0)
                        out.truncate()
                        digest = hashlib.sha256()
                    _copy(response, out, progress, digest if is_hashed else None)
                    return digest.hexdigest() if is_hashed else ""
            except (ServerUnavailable, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                if attempt == len(RETRY_PAUSES_S):
                    raise ServerUnavailable(f"the download of {path} broke off: {error}", "Try it again.") from error
                self.find_again()
        raise AssertionError("unreachable")

    def find_again(self) -> None:
        """Find the server again."""
        if self._reconnect is not None:
            self.address = self._reconnect()

    def close(self) -> None:
        """Close this thread's connection."""
        self._connections.close()


class Group:
    """Calls about one noun."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls


class _HeldConnection(ServerConnection):
    """Kept open between calls; users of the SDK need not close it."""

    def __del__(self) -> None:
        self.close()


@contextmanager
def checking() -> Iterator[None]:
    """Raise the server's error for a message whose fields are out of range."""
    try:
        yield
    except ValueError as error:
        raise JobError(str(error)) from error


def segment(name: str, what: str) -> str:
    """One part of an address; a slash or an empty name would mean something else."""
    if not is_safe_name(name):
        raise NotFound(f"no {what} {name!r}")
    return name


def run_path(ref: str, *parts: str) -> str:
    """The address of a run, or of something below it."""
    return "/".join(("/runs", segment(ref, "run"), *parts))


def _unreadable(path: str, error: WireError) -> MusterError:
    return MusterError(
        f"what the server answers at {path} cannot be read: {error}",
        "Install the same version of Muster for client and server.",
    )


def _unavailable(error: Exception) -> ServerUnavailable:
    if isinstance(error, ServerUnavailable):
        return error
    return ServerUnavailable(f"the server broke off in the middle of its answer: {error}", "Try it again.")


def _copy(response: http.client.HTTPResponse, out: IO[bytes], progress: Progress, digest: hashlib._Hash | None) -> None:
    expected = response.headers.get("Content-Length")
    received = 0
    while piece := response.read1(PIECE_BYTES):
        out.write(piece)
        received += len(piece)
        if digest is not None:
            digest.update(piece)
        progress(len(piece))
    if expected is not None and received != int(expected):
        raise http.client.IncompleteRead(b"", int(expected) - received)
