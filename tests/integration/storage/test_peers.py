"""Nodes that take blocks of staged data from each other, over real TLS."""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.sites.peers import WHERE, PeerNode, PeerSite

from muster.host.http import Address, trust
from muster.storage.connectors.base import SourceChanged, TransferError
from muster.storage.grants import Grant
from muster.storage.peers import asking, ledger, planner, serving
from muster.storage.peers.blocks import Row, shelf_name
from muster.wire.data.access import GRANT_HEADER, FileEntry

_CHANCE = random.Random(7)
FILES = {
    "big.bin": _CHANCE.randbytes(18 << 20),
    "empty": b"",
    **{f"small/{number:03}": _CHANCE.randbytes(20_000) for number in range(60)},
    "z/last": _CHANCE.randbytes(3 << 20),
}
TOTAL = sum(len(data) for data in FILES.values())


class Counted:
    """A source in memory that counts what is read of it."""

    label = "memory"

    def __init__(self) -> None:
        self.bytes = 0
        self.broken: Exception | None = None
        self.before: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def stat(self, path: str) -> None:
        return None

    def listing(self, folder: str = "") -> list[FileEntry]:
        return [FileEntry(path, len(data), etag="1") for path, data in FILES.items()]

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        self.before()
        if self.broken is not None:
            raise self.broken
        with self._lock:
            self.bytes += len(view)
        view[:] = FILES[entry.path][offset : offset + len(view)]


@pytest.fixture
def site() -> Iterator[PeerSite]:
    made = PeerSite()
    yield made
    made.close()


@pytest.fixture
def nodes(site: PeerSite, tmp_path: Path) -> list[PeerNode]:
    return [site.add(f"n{number}", tmp_path / f"n{number}") for number in range(4)]


def together(nodes: list[PeerNode], source: Counted) -> None:
    with ThreadPoolExecutor(len(nodes)) as pool:
        for files in pool.map(lambda node: node.stage(source), nodes):
            assert files == FILES


def shelf() -> str:
    return shelf_name(WHERE, Row(Counted().listing()).content() or "")


def test_a_gang_reads_the_source_once(nodes: list[PeerNode]) -> None:
    source = Counted()
    together(nodes, source)
    assert source.bytes == TOTAL
    assert sum(node.progress.peer_bytes for node in nodes) == 3 * TOTAL
    assert all(node.progress.done_bytes == TOTAL and node.progress.done_files == len(FILES) for node in nodes)


def test_a_late_node_takes_all_from_those_who_have_it(site: PeerSite, nodes: list[PeerNode], tmp_path: Path) -> None:
    source = Counted()
    together(nodes[:2], source)
    assert nodes[3].stage(source) == FILES
    assert source.bytes == TOTAL
    # Also when the server has forgotten everything, and the others find it in their caches.
    site.board = type(site.board)()
    together(nodes[:2], source)
    assert site.add("later", tmp_path / "later").stage(source) == FILES
    assert source.bytes == TOTAL


def test_a_peer_that_serves_wrong_bytes_is_named_and_asked_no_more(site: PeerSite, nodes: list[PeerNode]) -> None:
    source, liar = Counted(), nodes[0]
    honest = liar.server.shelves.read

    def lie(name: str, block: int) -> tuple[int, Iterator[bytes]]:
        size, _ = honest(name, block)
        return size, iter([b"\0" * size])

    liar.server.shelves.read = lie  # type: ignore[method-assign]
    together(nodes, source)
    assert site.notices == ["n0"]
    # What the liar alone had read was read once more.
    assert source.bytes <= 2 * TOTAL


def test_a_peer_that_dies_half_way_is_worked_around(nodes: list[PeerNode]) -> None:
    source, reads = Counted(), threading.Semaphore(10)
    victim = nodes[0]

    def die() -> None:
        if not reads.acquire(blocking=False) and not victim.progress.stop.is_set():
            victim.progress.stop.set()
            victim.server.shutdown()
            victim.server.server_close()

    source.before = die
    with ThreadPoolExecutor(len(nodes)) as pool:
        doomed = pool.submit(victim.stage, source)
        for files in pool.map(lambda node: node.stage(source), nodes[1:]):
            assert files == FILES
        assert doomed.exception() is not None


def test_nodes_that_do_not_reach_each_other_read_the_source(site: PeerSite, nodes: list[PeerNode]) -> None:
    source = Counted()
    for node in nodes:
        node.server.shutdown()
        node.server.server_close()
    together(nodes, source)
    assert source.bytes <= 4 * TOTAL
    assert site.unreachable
    for node in nodes:
        # Closed already.
        node.close = lambda: None  # type: ignore[method-assign]


def test_nodes_that_refuse_each_others_grants_read_the_source_and_say_so(
    site: PeerSite, nodes: list[PeerNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is where clocks are hours apart."""

    def early(*fields: Any) -> Grant:
        *rest, not_before, expires_at, subject = fields
        return Grant(*rest, not_before + 7_200, expires_at + 7_200, subject)

    monkeypatch.setattr("tests.sites.peers.Grant", early)
    source = Counted()
    together(nodes[:2], source)
    assert source.bytes <= 2 * TOTAL
    assert site.unreachable


def test_a_server_that_is_away_keeps_nobody_from_the_data(
    site: PeerSite, nodes: list[PeerNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "ALONE_AFTER_S", 0.5)
    source = Counted()
    site.is_away = True
    assert nodes[0].stage(source) == FILES
    assert source.bytes == TOTAL


def test_a_peer_with_another_certificate_is_not_believed(site: PeerSite, nodes: list[PeerNode]) -> None:
    source = Counted()
    assert nodes[0].stage(source) == FILES
    nodes[0].identity = nodes[1].identity
    assert nodes[2].stage(source) == FILES
    assert source.bytes == 2 * TOTAL


def test_what_was_cut_off_goes_on_where_it_stopped(nodes: list[PeerNode]) -> None:
    source, reads = Counted(), threading.Semaphore(6)

    def cut() -> None:
        if not reads.acquire(blocking=False):
            source.broken = TransferError("data_unavailable", "cut")

    source.before = cut
    with pytest.raises(TransferError, match="cut"):
        nodes[0].stage(source)
    before, source.before, source.broken = source.bytes, lambda: None, None
    assert before
    assert nodes[0].stage(source) == FILES
    assert nodes[0].progress.resumed_bytes
    assert source.bytes < before + TOTAL


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_what_was_cut_off_and_damaged_since_reaches_nobody(nodes: list[PeerNode], damage: str) -> None:
    source, reads = Counted(), threading.Semaphore(12)

    def cut() -> None:
        if not reads.acquire(blocking=False):
            source.broken = TransferError("data_unavailable", "cut")

    source.before = cut
    with pytest.raises(TransferError, match="cut"):
        nodes[0].stage(source)
    (partial,) = (nodes[0].root / "trees" / ".partial").iterdir()
    first = json.loads((partial / "blocks").read_text().split("\n")[1])
    path = partial / "data" / "big.bin"
    with path.open("r+b") as file:
        file.seek(first["block"] * Row(source.listing()).block_bytes)
        file.write(b"another")
        if damage == "cut":
            file.truncate(10)
    if damage == "gone":
        path.unlink()
    source.before, source.broken = lambda: None, None
    assert nodes[0].stage(source) == FILES


def test_a_damaged_whole_is_fetched_again_from_the_source_alone(nodes: list[PeerNode]) -> None:
    """Wrong bytes that a node vouches for are noticed where the file's own hash is known."""
    source = Counted()
    hashed = [FileEntry(path, len(data), hashlib.sha256(data).hexdigest(), etag="1") for path, data in FILES.items()]
    true, FILES["z/last"] = FILES["z/last"], bytes(len(FILES["z/last"]))
    try:
        # It read another content under the same version, and vouches for that.
        nodes[0].stage(source)
    finally:
        FILES["z/last"] = true
    assert nodes[1].stage(source, hashed) == FILES


def test_a_source_that_changes_is_noticed(nodes: list[PeerNode]) -> None:
    source = Counted()
    source.broken = SourceChanged("big.bin")
    with pytest.raises(TransferError, match="changed while it was being read, twice"):
        nodes[0].stage(source)


def ask(node: PeerNode, target: str, grant: str, method: str = "GET") -> int:
    tls = trust(Address(node.url, pinned_certificate=node.identity.certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", node.server.port, timeout=10, context=tls)
    try:
        connection.request(method, target, headers={GRANT_HEADER: grant})
        return connection.getresponse().status
    finally:
        connection.close()


def test_blocks_open_only_to_a_grant_for_them(site: PeerSite, nodes: list[PeerNode]) -> None:
    first, second = nodes[:2]
    first.stage(Counted())
    good = site.offer("n0", shelf()).grant
    assert ask(first, f"/blocks/{shelf()}/0", good) == 200
    assert ask(first, f"/blocks/{shelf()}/0", "") == 403
    assert ask(first, f"/blocks/{shelf()}/0", good[:-4] + "AAAA") == 403
    # One for another content, and one for another node.
    assert ask(first, f"/blocks/{shelf()}/0", site.offer("n0", "0" * 64).grant) == 403
    assert ask(first, f"/blocks/{shelf()}/0", site.offer("n1", shelf()).grant) == 403
    assert ask(first, f"/blocks/{'0' * 64}/0", site.offer("n0", "0" * 64).grant) == 404
    assert ask(first, f"/blocks/{shelf()}/999999", good) == 404
    assert ask(first, "/blocks/../../etc/passwd/1", good) == 404
    assert ask(first, f"/blocks/{shelf()}/0", good, "POST") == 501
    assert ask(second, f"/blocks/{shelf()}/0", site.offer("n1", shelf()).grant) == 404


def test_garbage_does_the_one_who_serves_no_harm(site: PeerSite, nodes: list[PeerNode]) -> None:
    import socket

    first = nodes[0]
    first.stage(Counted())
    for rubbish in (b"\0" * 4096, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 400):
        with socket.create_connection(("127.0.0.1", first.server.port), 10) as end:
            end.sendall(rubbish)
    insecure = ssl.create_default_context()
    with (
        pytest.raises(ssl.SSLCertVerificationError),
        socket.create_connection(("127.0.0.1", first.server.port), 10) as end,
    ):
        insecure.wrap_socket(end, server_hostname="127.0.0.1")
    assert ask(first, f"/blocks/{shelf()}/0", site.offer("n0", shelf()).grant) == 200


def test_those_who_dawdle_keep_out_nobody_with_a_grant(site: PeerSite, nodes: list[PeerNode]) -> None:
    import socket

    first = nodes[0]
    first.stage(Counted())
    secured = ssl.create_default_context(cadata=first.identity.certificate)
    with ExitStack() as held:
        for number in range(300):
            end = held.enter_context(socket.create_connection(("127.0.0.1", first.server.port), 30))
            if number % 10 == 0:
                # The handshake done, and half a request.
                with suppress(OSError):
                    held.enter_context(secured.wrap_socket(end, server_hostname="127.0.0.1")).sendall(b"GET /blo")
        for _ in range(3):
            assert ask(first, f"/blocks/{shelf()}/0", site.offer("n0", shelf()).grant) == 200


def test_those_who_never_shake_hands_keep_out_nobody(
    site: PeerSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    monkeypatch.setattr(serving, "_MOST_CONNECTIONS", 8)
    monkeypatch.setattr(serving, "_HANDSHAKE_S", 600.0)
    first = site.add("small", tmp_path / "small")
    first.stage(Counted())
    with ExitStack() as held:
        for _ in range(40):
            held.enter_context(socket.create_connection(("127.0.0.1", first.server.port), 30))
        for _ in range(3):
            assert ask(first, f"/blocks/{shelf()}/0", site.offer("small", shelf()).grant) == 200


def test_a_node_holds_few_connections_to_a_peer(nodes: list[PeerNode]) -> None:
    source, second = Counted(), nodes[1]
    assert nodes[0].stage(source) == FILES
    taken: set[Any] = set()
    honest = nodes[0].server.process_request

    def count(request: Any, client_address: Any) -> None:
        taken.add(client_address)
        honest(request, client_address)

    nodes[0].server.process_request = count  # type: ignore[method-assign]
    assert second.stage(source) == FILES
    assert 0 < len(taken) <= planner.PER_PEER


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_peer_that_serves_blocks_of_another_size_is_named(
    site: PeerSite, nodes: list[PeerNode], difference: int
) -> None:
    source, liar = Counted(), nodes[0]
    honest = liar.server.shelves.read

    def lie(name: str, block: int) -> tuple[int, Iterator[bytes]]:
        size, _ = honest(name, block)
        return size + difference, iter([bytes(size + difference)])

    liar.server.shelves.read = lie  # type: ignore[method-assign]
    together(nodes, source)
    assert site.notices == ["n0"]


def test_a_block_is_never_served_before_it_is_whole(site: PeerSite, nodes: list[PeerNode]) -> None:
    source, reads = Counted(), threading.Semaphore(5)

    def cut() -> None:
        if not reads.acquire(blocking=False):
            raise TransferError("data_unavailable", "cut")

    source.before = cut
    with pytest.raises(TransferError):
        nodes[0].stage(source)
    grant = site.offer("n0", shelf()).grant
    row = Row(source.listing())
    found = [ask(nodes[0], f"/blocks/{shelf()}/{block}", grant) for block in range(0, row.count, 4)]
    assert 200 in found
    assert 404 in found


def test_a_peer_that_sends_without_end_is_given_up(
    nodes: list[PeerNode], site: PeerSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Row(Counted().listing()).length(0)

    def send_forever(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(size))
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        with suppress(OSError):
            while True:
                handler.wfile.write(b"%x\r\n" % size + bytes(size) + b"\r\n")
        handler.close_connection = True

    monkeypatch.setattr(serving._Handler, "do_GET", send_forever)
    offer = site.offer("n0", shelf())
    with pytest.raises(asking.PeerTrouble, match="more than the block"):
        asking.Connections().fetch(offer, asking.trust_in(offer), 0, shelf(), memoryview(bytearray(size)), 60.0)


def test_a_slow_peer_is_given_up(nodes: list[PeerNode], site: PeerSite) -> None:
    nodes[0].stage(Counted())
    offer = site.offer("n0", shelf())
    view = memoryview(bytearray(Row(Counted().listing()).length(0)))
    with pytest.raises(asking.PeerTrouble, match="too slow"):
        asking.Connections().fetch(offer, asking.trust_in(offer), 0, shelf(), view, patience_s=-1.0)


@pytest.mark.parametrize("piece", [b"HTTP/1.1 100 Continue\r\n\r\n", b"X"])
def test_a_peer_whose_answer_never_begins_is_given_up(
    nodes: list[PeerNode], site: PeerSite, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    def begin_for_ever(handler: Any) -> None:
        with suppress(OSError):
            while True:
                handler.wfile.write(piece)
        handler.close_connection = True

    monkeypatch.setattr(serving._Handler, "do_GET", begin_for_ever)
    monkeypatch.setattr(http.client, "_MAXLINE", 1 << 40)
    offer, view = site.offer("n0", shelf()), memoryview(bytearray(10))
    with pytest.raises(asking.PeerTrouble, match="too slow"):
        asking.Connections().fetch(offer, asking.trust_in(offer), 0, shelf(), view, patience_s=0.5)
