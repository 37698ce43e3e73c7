"""HTTP over a Unix socket, TCP, TLS or a shared folder, for clients, agents and movers.

`Connection` is one keep-alive connection for JSON; `PerThread` gives each thread its own; `RetryingClient` retries
transient failures. The standard library's client is enough, starts in 20 ms instead of 120, and keeps an agent small.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Generic, TypedDict, TypeVar, Unpack
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from muster.errors import ServerUnavailable
from muster.host.spool import SpoolConnection
from muster.wire.workspace import TOTAL_HEADER

Body = bytes | memoryview | IO[bytes] | Iterable[bytes] | None
Query = Mapping[str, str | int | float | bool | Sequence[str] | None]
Refused = Callable[[int, bytes], Exception]
"""Makes the error for a refusal from its status and its body."""

_HINT = "Is it running? `muster status` tells; `muster up` starts one for a team."
_CONNECT_S = 10.0
"""An unreachable host is given up sooner than a slow one."""
_HEAD_BYTES = 64 << 10
_PIECE_BYTES = 256 << 10
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PASSING = {408, 429, 500, 502, 503, 504}
"""Transient statuses, which a retry may avoid."""


@dataclass(frozen=True)
class Address:
    """Where a server listens, and how to recognize it."""

    url: str
    """`unix:/path/to/socket`, `http://127.0.0.1:port`, `https://host:port` or `file:/path/of/a/shared/folder`."""
    token: str = ""
    pinned_certificate: str | None = None

    @property
    def shown(self) -> str:
        """The address for messages: without user name or password."""
        for prefix in ("unix:", "file:"):
            if self.url.startswith(prefix):
                return self.url.removeprefix(prefix)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Sent(TypedDict, total=False):
    """Body and headers of a request; without a timeout the connection's own counts."""

    body: Body
    headers: Mapping[str, str] | None
    timeout_s: float | None


class RequestOptions(Sent, total=False):
    """The same before encoding: JSON body and query."""

    json_body: Any
    query: Query | None


class UntrustedCertificate(ServerUnavailable):
    """The server's certificate is not trusted here."""


class Connection:
    """One keep-alive connection; not shared between threads."""

    def __init__(
        self,
        address: Address,
        timeout_s: float = 60.0,
        *,
        headers: Mapping[str, str] | None = None,
        refused: Refused | None = None,
        external: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`headers` are sent with every request. `external`: use the site's proxy, and trust its authorities.

        `tls`: a TLS context that several connections share.
        """
        self.address = address
        self.timeout_s = timeout_s
        self._headers = dict(headers or {})
        if address.token:
            self._headers["Authorization"] = f"Bearer {address.token}"
        self._refused = refused
        self._external = external
        self._tls = tls
        self._http: http.client.HTTPConnection | None = None
        self.next_page: str | None = None
        """The cursor of the next page, where the last answer was not the last page."""
        self.total: int | None = None
        """How many items the whole list has, where the last answer was its first page."""

    def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Any:
        """Send a request and return its JSON answer (or None)."""
        with self.stream(method, path, **options) as response:
            data = response.read()
            self.next_page = next_cursor(response.headers.get("Link"))
            total = response.headers.get(TOTAL_HEADER)
            self.total = int(total) if total and total.isdecimal() else None
        return json.loads(data) if data else None

    @contextmanager
    def stream(
        self, method: str, path: str, *, json_body: Any = None, query: Query | None = None, **options: Unpack[Sent]
    ) -> Iterator[http.client.HTTPResponse]:
        """Like `request`, but returns the response while it arrives."""
        if json_body is not None:
            options["body"] = json.dumps(json_body).encode()
            options["headers"] = {**(options.get("headers") or {}), "Content-Type": "application/json"}
        with self.exchange(method, target_of(path, query), **options) as response:
            if response.status >= 400 and self._refused is not None:
                raise self._refused(response.status, response.read())
            yield response

    @contextmanager
    def exchange(self, method: str, target: str, **sent: Unpack[Sent]) -> Iterator[http.client.HTTPResponse]:
        """Send a request whose target is quoted already, and return the response, whatever its status.

        Raises ServerUnavailable where none arrives; errors while its body is read are passed through.
        """
        headers = {**self._headers, **(sent.get("headers") or {})}
        response = self._send(method, target, sent.get("body"), headers, sent.get("timeout_s") or self.timeout_s)
        try:
            yield response
        except BaseException:
            self.close()
            raise
        if not response.isclosed():
            # Otherwise the rest of the body would be taken for the next response.
            self.close()

    def upgrade(self, target: str, protocol: str) -> socket.socket:
        """Upgrade the connection to a byte stream for another protocol; the caller owns it from then on.

        Raises like a request where the server refuses.
        """
        if self.address.url.startswith("file:"):
            raise ServerUnavailable(f"{self.address.shown} is a shared folder, which carries no streams")
        connection = self._connect(self.timeout_s)
        try:
            connection.putrequest("POST", target)
            for name, value in {**self._headers, "Connection": "Upgrade", "Upgrade": protocol}.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", "0")
            connection.endheaders()
            status, body = _switched(connection.sock)
        except (http.client.HTTPException, OSError, ValueError) as error:
            self.close()
            raise ServerUnavailable(f"the server at {self.address.url} did not answer: {error}", _HINT) from error
        if status == http.HTTPStatus.SWITCHING_PROTOCOLS:
            taken, self._http = connection.sock, None
            return taken
        self.close()
        raise (self._refused or _unexplained)(status, body)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _send(
        self, method: str, target: str, body: Body, headers: Mapping[str, str], timeout_s: float
    ) -> http.client.HTTPResponse:
        repeatable = body is None or isinstance(body, (bytes, memoryview))
        fresh = self._http is None
        while True:
            connection = self._connect(timeout_s)
            try:
                # A body of unknown length is sent in chunks.
                connection.request(method, target, body=body, headers=dict(headers))
                return connection.getresponse()
            except (http.client.HTTPException, OSError) as error:
                self.close()
                # A kept-alive connection may have been closed by the server in the meantime.
                stale = isinstance(error, (http.client.RemoteDisconnected, ConnectionError))
                if stale and not fresh and repeatable:
                    fresh = True
                    continue
                raise ServerUnavailable(f"the server at {self.address.url} did not answer: {error}", _HINT) from error
            except BaseException:
                # The request may have been sent partly.
                self.close()
                raise

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._http is None:
            fresh = open_connection(self.address, min(timeout_s, _CONNECT_S), self._external, self._tls)
            try:
                fresh.connect()
            except OSError as error:
                fresh.close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise _untrusted(self.address, error, self._external) from error
                raise ServerUnavailable(f"no server answers at {self.address.url}: {error}", _HINT) from error
            self._http = fresh
        if self._http.sock is not None:
            self._http.sock.settimeout(timeout_s)
        return self._http


Held = TypeVar("Held", bound=Connection)


class PerThread(Generic[Held]):
    """One connection per thread, opened by `connect`; reopened when the address changes."""

    def __init__(self, connect: Callable[[Address], Held]) -> None:
        self._connect = connect
        self._local = threading.local()

    def to(self, address: Address) -> Held:
        """The calling thread's connection."""
        held: Held | None = getattr(self._local, "held", None)
        # A forked child must neither use nor close its parent's connection.
        if held is not None and self._local.pid == os.getpid():
            if held.address == address:
                return held
            self.close()
        held = self._connect(address)
        self._local.held, self._local.pid = held, os.getpid()
        return held

    def close(self) -> None:
        """Close the calling thread's connection."""
        held: Held | None = getattr(self._local, "held", None)
        if held is not None:
            held.close()
            self._local.held = None


class _OfThread(Connection):
    """Closed with the thread that used it, as nobody else can."""

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class Answer:
    """A response that has been read."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes


class Repeatable(TypedDict, total=False):
    """Body and headers of a request that may be retried."""

    headers: Mapping[str, str]
    body: bytes | memoryview | Callable[[], Iterator[bytes]] | None
    """A callable makes a new body for each try, of any size."""
    into: memoryview | None
    """A buffer that is filled with the body of a success."""
    allowed: Collection[int]
    """Statuses that are returned without retries."""


class _Following(threading.local):
    """Progress of a response body of this thread."""

    filled: Callable[[int], None] = staticmethod(lambda count: None)


following = _Following()


class RetryingClient:
    """Requests to one server, from any thread, with retries of transient failures."""

    def __init__(
        self,
        address: Address,
        timeout_s: float = 60.0,
        *,
        tries: int = 6,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.address = address
        self._tries = tries
        self._pause = pause
        # Loading the authorities takes longer than a request; all threads share one context.
        tls = trust(address, external=True) if address.url.startswith("https:") else None
        self._connections = PerThread(lambda address: _OfThread(address, timeout_s, external=True, tls=tls))

    def request(self, method: str, target: str, **sent: Unpack[Repeatable]) -> Answer:
        """The answer, whatever its status; transient failures are retried first, unless the status is `allowed`.

        Raises ServerUnavailable where no answer arrives, with the reason as its cause.
        """
        allowed = sent.get("allowed", ())
        for pause_s in retry_pauses(self._tries):
            try:
                answer = self._once(method, target, sent)
                if answer.status not in _PASSING or answer.status in allowed or pause_s is None:
                    return answer
            except UntrustedCertificate:
                raise
            except (OSError, http.client.HTTPException, ServerUnavailable) as error:
                if pause_s is None:
                    cause = error.__cause__ or error
                    raise ServerUnavailable(f"{self.address.shown} does not answer: {cause}") from cause
            self._pause(pause_s)
        raise AssertionError("unreachable")

    @contextmanager
    def opened(self, target: str, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """The response to a GET while it arrives, of any status and size; without retries."""
        with self._connections.to(self.address).exchange("GET", target, headers=headers) as response:
            yield response

    def close(self) -> None:
        """Close the calling thread's connection."""
        self._connections.close()

    def _once(self, method: str, target: str, sent: Repeatable) -> Answer:
        body, into = sent.get("body"), sent.get("into")
        connection = self._connections.to(self.address)
        whole = body() if callable(body) else body
        with connection.exchange(method, target, body=whole, headers=sent.get("headers")) as response:
            found = {name.lower(): value for name, value in response.getheaders()}
            if into is None or response.status >= 300:
                return Answer(response.status, found, response.read())
            if response.status != 206 and "Range" in (sent.get("headers") or {}):
                # The server sends the whole file instead of a range: do not read it to its end.
                return Answer(response.status, found, b"")
            _fill(response, into, found)
            return Answer(response.status, found, b"")


def retry_pauses(tries: int, first_s: float = 0.1, most_s: float = 5.0) -> Iterator[float | None]:
    """The pause after each failed try; None after the last. With jitter, so that many do not retry at once."""
    wait_s = first_s
    for _ in range(tries - 1):
        yield wait_s * random.uniform(0.5, 1.5)
        wait_s = min(wait_s * 2, most_s)
    yield None


def target_of(path: str, query: Query | None = None) -> str:
    """A request's target, quoted; values that are None are left out."""
    target = quote(path, safe="/@:~")
    chosen = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{target}?{urlencode(chosen, doseq=True)}" if chosen else target


def next_cursor(link: str | None) -> str | None:
    """The cursor of the next page, from a `Link` header."""
    target, _, relation = (link or "").partition(">")
    if 'rel="next"' not in relation:
        return None
    return next(iter(parse_qs(urlsplit(target.lstrip(" <")).query).get("cursor", ())), None)


def _switched(end: socket.socket) -> tuple[int, bytes]:
    """The response's status, and its body where it is a refusal. Reads not a byte more: the rest is the stream."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        byte = end.recv(1)
        if not byte or len(head) > _HEAD_BYTES:
            raise http.client.RemoteDisconnected("the connection ended before an answer came")
        head += byte
    first, _, rest = bytes(head).partition(b"\r\n")
    status = int(first.split(None, 2)[1])
    length = int(http.client.parse_headers(io.BytesIO(rest)).get("Content-Length") or 0)
    body = bytearray()
    while status >= 300 and len(body) < min(length, _HEAD_BYTES):
        piece = end.recv(_HEAD_BYTES)
        if not piece:
            break
        body += piece
    return status, bytes(body)


def _unexplained(status: int, _body: bytes) -> Exception:
    return ServerUnavailable(f"the server answered {status}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def open_connection(
    address: Address, timeout_s: float, external: bool, tls: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    if address.url.startswith("unix:"):
        return _UnixConnection(address.url.removeprefix("unix:"), timeout_s)
    if address.url.startswith("file:"):
        return SpoolConnection(address.url.removeprefix("file:"), timeout_s)
    parts = urlsplit(address.url)
    host = parts.hostname or "127.0.0.1"
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    # Slow to import, and most clients use a socket.

    tls = tls or trust(address, external)
    proxy = _proxy(host) if external and host not in _LOOPBACK else None
    if not proxy:
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls)
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    tunnel = http.client.HTTPSConnection(via.hostname or "", via.port or 80, timeout=timeout_s, context=tls)
    tunnel.set_tunnel(host, parts.port or 443)
    return tunnel


def _proxy(host: str) -> str | None:
    # Its import takes 10 ms, which every command would wait for.
    from urllib.request import getproxies, proxy_bypass

    return None if proxy_bypass(host) else getproxies().get("https")


def trust(address: Address, external: bool = False) -> ssl.SSLContext:
    """The TLS context for an address."""
    context = ssl.create_default_context(cadata=address.pinned_certificate)
    if address.pinned_certificate:
        # The certificate itself is pinned, whatever name or address the server is reached by.
        context.check_hostname = False
        # Even if it was signed by an unknown authority.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    elif external:
        # The variables by which other tools are given a site's own authority.
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            bundle = os.environ.get(name)
            if bundle and os.path.isfile(bundle):  # noqa: PTH113
                context.load_verify_locations(bundle)
    return context


def _untrusted(address: Address, error: ssl.SSLCertVerificationError, external: bool) -> UntrustedCertificate:
    if external:
        return UntrustedCertificate(
            f"{address.shown} shows a certificate that is not trusted here ({error.verify_message}). If it has "
            "its own authority, set SSL_CERT_FILE to that authority's certificate for the node's agent."
        )
    if address.pinned_certificate:
        return UntrustedCertificate(
            f"the server at {address.shown} shows another certificate than the one that is known of it",
            "Was it set up again? Then log in again with the line that `muster up` prints there. Otherwise something "
            "stands between you and the server.",
        )
    return UntrustedCertificate(
        f"a server answers at {address.shown}, but its certificate is not known here ({error.verify_message})",
        f"Log in once, with the line that `muster up` prints there: muster login {address.shown} --fingerprint …",
    )


def _fill(response: http.client.HTTPResponse, view: memoryview, headers: Mapping[str, str]) -> None:
    length = headers.get("content-length", str(len(view)))
    if not length.isdecimal() or int(length) != len(view):
        raise http.client.HTTPException(f"it sends {length[:20]} bytes where {len(view)} were asked for")
    filled = 0
    while filled < len(view):
        count = response.readinto(view[filled : filled + _PIECE_BYTES])
        if not count:
            raise http.client.IncompleteRead(b"", len(view) - filled)
        filled += count
        following.filled(filled)
    if response.read(1):
        # A chunked body could go on for ever.
        raise http.client.HTTPException(f"it sends more than the {len(view)} bytes that were asked for")
