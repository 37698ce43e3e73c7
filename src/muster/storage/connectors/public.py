"""One file at a public address. Redirects to other servers are followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Unpack
from urllib.parse import urljoin, urlsplit

from muster.host.http import Address, Answer, Repeatable
from muster.storage.connectors.base import AccessRefused, TransferError
from muster.storage.connectors.credentials import Keys
from muster.storage.connectors.http import Http
from muster.storage.connectors.web import Web
from muster.wire.data.access import FileEntry

_MOVED = (301, 302, 303, 307, 308)
_MOST_HOPS = 5
_REFUSED_NEXT = (
    "A web address is read without any credential. Give one that everybody may read, or register its storage: "
    "`muster datastore create NAME`."
)


@dataclass(frozen=True)
class _Place:
    """An address at which the file is requested."""

    http: Http
    url: str

    @property
    def target(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


class Public(Web):
    """Sends no credentials, so it may follow redirects anywhere."""

    def __init__(self, url: str, label: str = "") -> None:
        super().__init__(url, Keys(), label)
        self._first = self._now = _Place(self._http, url)
        self._lies_at: _Place | None = None

    def _call(self, method: str, path: str, query: str = "", **sent: Unpack[Repeatable]) -> Answer:
        allowed, headers = sent.get("allowed", ()), sent.get("headers", {})
        sent["allowed"], is_led_again = (*allowed, *_MOVED), False
        for _ in range(_MOST_HOPS + 1):
            place = self._now
            sent["headers"] = self._fit(place, headers)
            try:
                answer = place.http.request(method, place.target, self._what(path), **sent)
            except AccessRefused as error:
                if place is self._first or is_led_again:
                    error.next = _REFUSED_NEXT
                    raise
                # The redirect's target may be valid only for a while.
                self._now, is_led_again = self._first, True
                continue
            if answer.status not in _MOVED:
                self._lies_at = place
                return answer
            self._go_on(place, answer.headers.get("location", ""))
        raise self._lost(f"its server sends its readers on more than {_MOST_HOPS} times")

    @contextmanager
    def _opened(self, entry: FileEntry, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
        for _ in range(_MOST_HOPS + 1):
            place = self._now
            with place.http.opened(place.target, self._what(entry.path), headers) as answer:
                if answer.status in (401, 403) and place is not self._first:
                    self._now = self._first
                    continue
                if answer.status not in _MOVED:
                    yield answer
                    return
                self._go_on(place, answer.headers.get("Location", ""))
        raise self._lost(f"its server sends its readers on more than {_MOST_HOPS} times")

    def _fit(self, place: _Place, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Keep the condition only for the server that has the file: a redirecting one knows no version, or another."""
        if place is self._lies_at:
            return headers
        return {name: value for name, value in headers.items() if name != "If-Match"}

    def _go_on(self, place: _Place, location: str) -> None:
        url = urljoin(place.url, location)
        parts = urlsplit(url)
        if not location or parts.scheme not in ("http", "https") or not parts.hostname:
            raise self._lost("its server sends its readers on, but not to a web address")
        if parts.scheme == "http" and place.url.startswith("https:"):
            raise self._lost(f"its server sends its readers on to http://{parts.netloc}, which is not encrypted")
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        http = place.http if origin == place.http.shown else Http(Address(origin))
        self._now = _Place(http, url)

    def _lost(self, why: str) -> TransferError:
        return TransferError(
            "data_unavailable", f"{self.label}: {why}", final=True, next="Give the address it leads to."
        )
