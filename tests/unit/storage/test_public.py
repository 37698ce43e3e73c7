"""Files at public addresses whose servers send readers on, lie about lengths, or send something else than was asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from muster.storage.connectors.base import BLOCK_BYTES, AccessRefused, SourceChanged, TransferError, without_ranges
from muster.storage.connectors.public import Public
from muster.wire.data.access import FileEntry

DATA = bytes(range(251)) * 100


class Site(ThreadingHTTPServer):
    """Answers as its table says; keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.leads: dict[str, str] = {}
        self.lies: dict[str, str] = {}
        self.closed: set[str] = set()
        self.asked: list[tuple[str, str, bool]] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """What a client breaks off is no trouble."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None: ...

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path, "If-Match" in self.headers))
        if self.path in self.server.leads:
            self._send(302, b"", {"Location": self.server.leads[self.path], "ETag": '"of the hop"'})
        elif self.path in self.server.closed:
            self._send(403, b"expired", {})
        else:
            self._file(self.server.lies.get(self.path, ""))

    def _file(self, lie: str) -> None:
        given = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        headers = {"ETag": '"v2"' if lie == "changed" and self.command == "GET" else '"v1"'}
        if given is None or lie in ("whole", "changed"):
            self._send(200, DATA, headers)
            return
        first, last = int(given[1]), int(given[2])
        part = DATA[first : last + 1]
        if lie == "elsewhere":
            first, last, part = 0, len(part) - 1, DATA[: len(part)]
        headers["Content-Range"] = f"bytes {first}-{last}/{len(DATA)}"
        self._send(206, part + b"more" * (lie == "more"), headers, is_chunked=lie == "more")

    def _send(self, status: int, body: bytes, headers: dict[str, str], is_chunked: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
            body = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        else:
            self.send_header("Content-Length", self.server.lies.get("length", str(len(body))))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    served = Site(), Site()
    threads = [threading.Thread(target=site.serve_forever, args=(0.05,)) for site in served]
    for thread in threads:
        thread.start()
    yield served
    for site, thread in zip(served, threads, strict=True):
        site.shutdown()
        site.server_close()
        thread.join()


def part(source: Public, entry: FileEntry, offset: int, count: int) -> bytes:
    view = bytearray(count)
    source.read(entry, offset, memoryview(view))
    return bytes(view)


def test_who_is_sent_on_to_another_server_reads_there(sites: tuple[Site, Site]) -> None:
    hub, store = sites
    hub.leads = {"/file": "/here", "/here": f"{store.url}/kept?sig=1"}
    source = Public(f"{hub.url}/file")
    entry = source.stat("")
    assert entry == FileEntry("", len(DATA), etag="v1")
    assert [part(source, entry, at, 100) for at in (0, 500)] == [DATA[:100], DATA[500:600]]
    # Each part is asked for where the file lies, on the condition that it is still the same.
    assert store.asked == [("HEAD", "/kept?sig=1", False), *[("GET", "/kept?sig=1", True)] * 2]
    assert len(hub.asked) == 2
    # What it was led to has ended, and it is led to another place.
    store.closed.add("/kept?sig=1")
    hub.leads["/here"] = f"{store.url}/kept?sig=2"
    assert part(source, entry, 0, 100) == DATA[:100]
    assert not any(has_condition for _, _, has_condition in hub.asked)
    assert b"".join(source.whole(entry)) == DATA
    assert b"".join(Public(f"{hub.url}/file").whole(entry)) == DATA


def test_who_leads_round_in_circles_or_elsewhere_is_named(sites: tuple[Site, Site]) -> None:
    hub, store = sites
    hub.leads = {"/a": "/b", "/b": "/a", "/c": "file:///etc/passwd", "/d": f"{store.url}/shut"}
    store.closed.add("/shut")
    for path, why in (("a", "sends its readers on more than 5 times"), ("c", "not to a web address")):
        with pytest.raises(TransferError, match=why):
            Public(f"{hub.url}/{path}").stat("")
        with pytest.raises(TransferError, match=why):
            Public(f"{hub.url}/{path}").has_ranges(FileEntry("", 10))
    with pytest.raises(AccessRefused, match=r"access was refused \(403\)") as refused:
        Public(f"{hub.url}/d").stat("")
    assert "read without any credential" in refused.value.next
    # Its frames hold the connection.
    del refused


def test_a_file_in_one_piece_is_led_to_again_where_its_place_has_ended(sites: tuple[Site, Site]) -> None:
    hub, store = sites
    hub.leads = {"/file": f"{store.url}/kept?sig=1"}
    source = Public(f"{hub.url}/file")
    entry = source.stat("")
    assert entry is not None
    store.closed.add("/kept?sig=1")
    hub.leads["/file"] = f"{store.url}/kept?sig=2"
    assert b"".join(source.whole(entry)) == DATA


def test_another_part_than_was_asked_for_is_refused(sites: tuple[Site, Site]) -> None:
    site = sites[0]
    site.lies = {"/moved": "elsewhere", "/whole": "whole"}
    with pytest.raises(TransferError, match=r"sends another part of the file \(bytes 0-99/25100\)"):
        part(Public(f"{site.url}/moved"), FileEntry("", len(DATA), etag="v1"), 500, 100)
    with pytest.raises(TransferError, match="sends no parts of files"):
        part(Public(f"{site.url}/whole"), FileEntry("", len(DATA), etag="v1"), 500, 100)


def test_a_file_that_changed_while_it_came_in_one_piece_is_noticed(sites: tuple[Site, Site]) -> None:
    site = sites[0]
    site.lies = {"/file": "changed"}
    source = Public(f"{site.url}/file")
    entry = source.stat("")
    assert entry is not None
    assert without_ranges(source, [FileEntry("", BLOCK_BYTES + 1)]) is source
    with pytest.raises(SourceChanged):
        list(source.whole(entry))


@pytest.mark.parametrize("length", ["-5", "many", ""])
def test_a_length_that_is_none_is_refused(sites: tuple[Site, Site], length: str) -> None:
    site = sites[0]
    site.lies = {"length": length}
    with pytest.raises(TransferError, match="does not tell how large it is"):
        Public(f"{site.url}/file").stat("")
