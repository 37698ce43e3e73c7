"""HTTP for storage: one connection per thread, retried while it makes sense; bodies go straight into buffers."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from muster.errors import ServerUnavailable
from muster.host.spool import SpoolConnection
from muster.storage.staging.model import AccessRefused, SourceChanged, TransferError

_TRIES = 6
_TIMEOUT_S = 60.0
_SPOOL_TIMEOUT_S = 600.0
"""Through a folder a body of any size counts as one wait."""
_GONE = (OSError, http.client.HTTPException, ServerUnavailable)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_AGAIN = {408, 429, 500, 502, 503, 504}
_PASSING = {408, 423, 425, 426, 429}
_PASSING_CODES = {"Md5Mismatch", "Crc64Mismatch", "InvalidBlockList", "storage"}
"""Damaged on its way; its blocks dropped by another writer of the blob; a datastore that the server cannot reach."""


@dataclass(frozen=True)
class Answer:
    """A response that has been read."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def refusal(self) -> tuple[str, str]:
        """Why a storage refused: its code, where it has one, and its words."""
        if code := self.headers.get("x-ms-error-code"):
            return code, code
        try:
            error = json.loads(self.body)["error"]
            return str(error["code"]), ". ".join(part for part in (error["message"], error.get("hint")) if part)
        except (ValueError, KeyError, TypeError):
            return "", self.body[:300].decode(errors="replace").strip()


class Http:
    """Requests to one server, from any thread."""

    def __init__(
        self, url: str, pinned_certificate: str | None = None, unix: str | None = None, spool: str | None = None
    ) -> None:
        """`spool`: requests go through this folder, which the server looks into."""
        parts = urlsplit(url)
        self._https = parts.scheme == "https"
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port
        self._unix = unix
        self._spool = spool
        self._tls = _tls(pinned_certificate) if self._https else None
        self._local = threading.local()
        self.shown = unix or spool or f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def request(
        self,
        method: str,
        target: str,
        what: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview | None = None,
        into: memoryview | None = None,
        allowed: Iterable[int] = (),
    ) -> Answer:
        """Send, and try again what may pass; `into` is filled by the body, and `allowed` statuses are answers too."""
        wait_s = 0.1
        for left in reversed(range(_TRIES)):
            try:
                answer = self._once(method, target, headers or {}, body, into)
            except _GONE as error:
                self._close()
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise TransferError("data_unavailable", _untrusted(self.shown, error)) from error
                if not left:
                    raise TransferError("data_unavailable", f"{what}: {self.shown} does not answer: {error}") from error
            else:
                if answer.status < 300 or answer.status in allowed:
                    return answer
                if answer.status not in _AGAIN or not left:
                    raise _trouble(method, what, answer)
            time.sleep(wait_s * random.uniform(0.5, 1.5))
            wait_s = min(wait_s * 2, 5.0)
        raise AssertionError("unreachable")

    def send_stream(
        self, method: str, target: str, what: str, headers: Mapping[str, str], pieces: Callable[[], Iterator[bytes]]
    ) -> Answer:
        """Send a body of any size; tried again from its start while the connection fails."""
        wait_s = 0.1
        for left in reversed(range(_TRIES)):
            try:
                connection = self._connection()
                connection.request(method, target, body=pieces(), headers=dict(headers))
                response = connection.getresponse()
                found = {name.lower(): value for name, value in response.getheaders()}
                answer = Answer(response.status, found, response.read())
                if answer.status not in _AGAIN or not left:
                    return answer
            except _GONE as error:
                if not left:
                    raise TransferError("data_unavailable", f"{what}: {self.shown} does not answer: {error}") from error
            self._close()
            time.sleep(wait_s * random.uniform(0.5, 1.5))
            wait_s = min(wait_s * 2, 5.0)
        raise AssertionError("unreachable")

    def _once(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | memoryview | None,
        into: memoryview | None,
    ) -> Answer:
        connection = self._connection()
        try:
            connection.request(method, target, body=body, headers=dict(headers))
            response = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            # A kept-alive connection that the server has closed in the meantime.
            self._close()
            connection = self._connection()
            connection.request(method, target, body=body, headers=dict(headers))
            response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        if into is None or response.status >= 300:
            return Answer(response.status, found, response.read())
        _fill(response, into, found)
        return Answer(response.status, found, b"")

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._open()
            connection.connect()
            if self._unix is None and self._spool is None:
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._local.connection = connection
        return connection

    def _open(self) -> http.client.HTTPConnection:
        """A connection, for TLS through the site's proxy where the environment names one for this host."""
        if self._unix is not None:
            return _UnixConnection(self._unix)
        if self._spool is not None:
            return SpoolConnection(self._spool, _SPOOL_TIMEOUT_S)
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        proxy = getproxies().get("https")
        if not proxy or self._host in _LOOPBACK or proxy_bypass(self._host):
            return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._tls)
        via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        tunnel = http.client.HTTPSConnection(via.hostname or "", via.port or 80, timeout=_TIMEOUT_S, context=self._tls)
        tunnel.set_tunnel(self._host, self._port or 443)
        return tunnel

    def _close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)


def _fill(response: http.client.HTTPResponse, view: memoryview, headers: Mapping[str, str]) -> None:
    length = headers.get("content-length")
    if length is not None and int(length) != len(view):
        # The rest of the body would be taken for the next answer.
        raise http.client.IncompleteRead(b"", len(view) - int(length))
    filled = 0
    while filled < len(view):
        count = response.readinto(view[filled:])
        if not count:
            raise http.client.IncompleteRead(b"", len(view) - filled)
        filled += count
    response.read()


def is_final(status: int, code: str, said: str) -> bool:
    """Whether a refusal will be the same however often it is tried."""
    if not 400 <= status < 500 or status in _PASSING:
        return False
    return code not in _PASSING_CODES and "Lease" not in code and "arrived damaged" not in said


def _trouble(method: str, what: str, answer: Answer) -> TransferError:
    code, said = answer.refusal
    final = is_final(answer.status, code, said)
    if answer.status in (401, 403):
        return AccessRefused(f"{what}: access was refused ({answer.status} {said})")
    if answer.status == 404:
        return TransferError("data_unavailable", f"{what}: it is not there (404 {said})", final)
    if answer.status in (409, 412) and method in ("GET", "HEAD"):
        return SourceChanged(what)
    return TransferError("data_unavailable", f"{what}: the storage answered {answer.status} {said}", final)


def _tls(pinned_certificate: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=pinned_certificate)
    if pinned_certificate:
        context.check_hostname = False
        return context
    # The names by which other tools know a site's own authority.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        bundle = os.environ.get(name)
        if bundle and os.path.isfile(bundle):  # noqa: PTH113
            context.load_verify_locations(bundle)
    return context


def _untrusted(where: str, error: ssl.SSLCertVerificationError) -> str:
    return (
        f"{where} shows a certificate that is not trusted here ({error.verify_message}). "
        "Where it has an authority of its own, set SSL_CERT_FILE to that authority's certificate for the node's agent."
    )
