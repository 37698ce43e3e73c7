"""Fetching a source's files together with other nodes: a share from the source, the rest from peers, block by block.

Continues where an earlier call was interrupted. Whatever peers or the server do, it ends as a plain download would:
blocks that no peer delivers are read from the source.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.host.http import following
from muster.storage.connectors.base import Source, TransferError
from muster.storage.peers.asking import Connections, PeerTrouble
from muster.storage.peers.blocks import Row, everything, to_text
from muster.storage.peers.board import MOST_BLOCKS
from muster.storage.peers.ledger import Ledger
from muster.storage.peers.planner import Fetch
from muster.storage.peers.shelf import BlockJournal
from muster.storage.staging.download import (
    FOR_BLOCKS,
    FOR_SMALL_FILES,
    SMALL_BYTES,
    Damaged,
    compare,
    local_trouble,
    write_at,
)
from muster.storage.staging.model import Progress, stored_path
from muster.wire.data.access import FileEntry
from muster.wire.node.peers import BlockHash, BlocksAnswer, BlocksReport

Exchange = Callable[[BlocksReport], BlocksAnswer | None]
"""Reports progress to the server, and returns its answer about other nodes; None where there is no answer."""

LEAST_SHARED_BYTES = 16 << 20
_MOST_SHARED_FILES = 200_000
"""With more, their list alone would take too much memory of the process that serves them."""
_LEAST_PAUSE_S = 0.1
_LOOK_S = 0.5
_NO_ANSWER_S = 1.0
_HASHED_BYTES = 256 << 10
_LAST_WORD_S = 5.0
_FOR_PEERS = 8
"""Threads, in addition to those that wait for the source."""


@dataclass(frozen=True)
class Sharing:
    """How a mover takes part in sharing."""

    exchange: Exchange
    shelf: str
    """The content's name among nodes."""
    node: str
    """The name of this one."""


@dataclass
class Nobody:
    """The source's stand-in where only other nodes have the content: every read fails."""

    label: str

    def listing(self, folder: str = "") -> Iterable[FileEntry]:
        raise self._gone()

    def stat(self, path: str) -> FileEntry | None:
        raise self._gone()

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        raise self._gone()

    def _gone(self) -> TransferError:
        return TransferError("data_unavailable", f"{self.label}: no other node has it any more")


def worth_sharing(row: Row, least_bytes: int = LEAST_SHARED_BYTES) -> bool:
    """Whether sharing pays: not for what is fetched quickly anyway, nor where versions are not known."""
    if row.size < least_bytes or len(row.entries) > _MOST_SHARED_FILES or row.count > MOST_BLOCKS:
        return False
    return row.content() is not None


def announce(row: Row, hashes: Mapping[int, str], exchange: Exchange) -> None:
    """Tell the server of a content that was here already."""
    told = tuple(BlockHash(block, sha256) for block, sha256 in hashes.items())
    exchange(BlocksReport(row.content() or "", row.count, have=to_text(everything(row.count)), hashes=told))


class Gathering:
    """One content on its way to this node."""

    def __init__(
        self,
        source: Source,
        row: Row,
        folder: Path,
        journal: BlockJournal,
        progress: Progress,
        sharing: Sharing | None = None,
    ) -> None:
        self._source = source
        self._row = row
        self._folder = folder
        self._journal = journal
        self._progress = progress
        self._exchange = sharing.exchange if sharing else None
        self._shelf = sharing.shelf if sharing else ""
        self._broken: list[BaseException] = []
        self._peers = Connections()
        self._changed = threading.Condition()
        self._report_now = threading.Event()
        self._hashing = Hashing(row, folder, journal, progress)
        small = row.size < len(row.entries) * SMALL_BYTES
        self._requests = FOR_SMALL_FILES if small else FOR_BLOCKS
        done = {block: sha256 for block, sha256 in journal.blocks.items() if block < row.count}
        self.ledger = Ledger.resumed(
            row.content() or "", row.count, self._requests, sharing.node if sharing else "", time.monotonic(), done
        )

    def run(self) -> dict[str, str]:
        """Put every file below the folder; returns their hashes."""
        self._prepare()
        if self._exchange is None:
            self.ledger.go_alone()
        count = min(self._row.count, self._requests + (_FOR_PEERS if self._exchange else 0))
        threads = [threading.Thread(target=self._work, name=f"fetch-{n}", daemon=True) for n in range(count)]
        for thread in threads:
            thread.start()
        telling = threading.Thread(target=self._tell, name="tell", daemon=True)
        telling.start()
        for thread in threads:
            thread.join()
        self._peers.close()
        self._report_now.set()
        telling.join(_LAST_WORD_S)
        if self._broken:
            raise self._broken[0]
        self._hashing.go_on(-1, memoryview(b""))
        return self._hashing.found

    def _prepare(self) -> None:
        for parent in sorted({str((self._folder / stored_path(entry)).parent) for entry in self._row.entries}):
            Path(parent).mkdir(parents=True, exist_ok=True)
        for entry in self._row.entries:
            path = self._folder / stored_path(entry)
            try:
                if entry.size >= self._row.block_bytes:
                    _take_room(path, entry.size)
            except OSError as error:
                raise local_trouble(error, path) from error
        for block in self._journal.blocks:
            if block < self._row.count:
                self._progress.add(self._row.length(block), resumed=True)
                self._hashing.has(block)
        self._hashing.begin()

    # Reporting

    def _tell(self) -> None:
        """Report to the server again and again, until everything is here."""
        exchange = self._exchange
        while exchange is not None:
            over = self._is_over()
            with self._changed:
                report, told = self.ledger.report(time.monotonic())
            pause_s = self._take(exchange(report), told)
            if over:
                # The last report has said that everything is here.
                return
            began = time.monotonic()
            self._report_now.wait(pause_s)
            self._report_now.clear()
            if not self._is_over():
                time.sleep(max(0.0, min(pause_s, _LEAST_PAUSE_S) - (time.monotonic() - began)))

    def _take(self, answer: BlocksAnswer | None, told: list[int]) -> float:
        with self._changed:
            now = time.monotonic()
            if answer is not None:
                self.ledger.take(answer, told, now)
            self.ledger.look_up(now)
            self._progress.nodes = self.ledger.nodes
            self._changed.notify()
        return answer.again_s if answer is not None else _NO_ANSWER_S

    def _is_over(self) -> bool:
        return bool(self._broken) or self.ledger.is_done

    # Fetching

    def _work(self) -> None:
        buffer = bytearray(self._row.block_bytes)
        following.filled = self._progress.arriving
        try:
            while (fetch := self._next()) is not None:
                view = memoryview(buffer)[: self._row.length(fetch.block)]
                if fetch.peer is None:
                    self._from_source(fetch, view)
                else:
                    self._from_peer(fetch, fetch.peer, view)
        except BaseException as error:
            self._broken.append(error)
        finally:
            with self._changed:
                self._changed.notify_all()

    def _next(self) -> Fetch | None:
        """The next block to fetch; None when there is nothing left."""
        with self._changed:
            while not self._is_over():
                fetch = self.ledger.choose(time.monotonic())
                if fetch is not None:
                    # One after the other: waking all threads for one block costs more than the work.
                    self._changed.notify()
                    return fetch
                self.ledger.look_up(time.monotonic())
                self._changed.wait(_LOOK_S)
                if self._progress.stop.is_set():
                    self._progress.add(0)
        return None

    def _from_source(self, fetch: Fetch, view: memoryview) -> None:
        began, filled = time.monotonic(), 0
        for part in self._row.parts(fetch.block):
            self._source.read(part.entry, part.offset, view[filled : filled + part.length])
            filled += part.length
        self._keep(fetch, view, hashlib.sha256(view).hexdigest(), began)
        # The sooner others hear of it, the sooner they can take it.
        self._report_now.set()

    def _from_peer(self, fetch: Fetch, node: str, view: memoryview) -> None:
        with self._changed:
            peer, wanted = self.ledger.peers[node], self.ledger.hashes[fetch.block]
            offer, tls, patience_s = peer.offer, peer.tls, self.ledger.patience_s(len(view))
        began = time.monotonic()
        try:
            self._peers.fetch(offer, tls, fetch.block, self._shelf, view, patience_s)
        except PeerTrouble as trouble:
            self._failed(fetch, trouble)
            return
        sha256 = hashlib.sha256(view).hexdigest()
        if sha256 != wanted:
            self._failed(fetch, PeerTrouble(f"{node} gave wrong bytes", lied=True))
            return
        self._keep(fetch, view, sha256, began)

    def _failed(self, fetch: Fetch, trouble: PeerTrouble) -> None:
        with self._changed:
            self.ledger.failed(fetch, trouble, time.monotonic())
        self._report_now.set()

    def _keep(self, fetch: Fetch, view: memoryview, sha256: str, began: float) -> None:
        filled = 0
        for part in self._row.parts(fetch.block):
            path = self._folder / stored_path(part.entry)
            try:
                _write_part(path, view[filled : filled + part.length], part.offset)
            except OSError as error:
                raise local_trouble(error, path) from error
            filled += part.length
        self._journal.block(fetch.block, sha256)
        now = time.monotonic()
        with self._changed:
            self.ledger.arrived(fetch, sha256, len(view), now - began, now)
        self._progress.add(len(view), from_peer=fetch.peer is not None)
        self._hashing.go_on(fetch.block, view)


class Hashing:
    """The hash of every file, in the order of the row, as far as blocks have arrived."""

    def __init__(self, row: Row, folder: Path, journal: BlockJournal, progress: Progress) -> None:
        self._row = row
        self._folder = folder
        self._journal = journal
        self._progress = progress
        self._lock = threading.Lock()
        self._arrived: set[int] = set()
        self._resumed: set[int] = set()
        self._next = 0
        self._busy = False
        self._file = 0
        self._hashed = 0
        self._digest: Any = hashlib.sha256()
        self.found: dict[str, str] = {}

    def has(self, block: int) -> None:
        """Add a block that an earlier call brought: it must be unchanged."""
        self._arrived.add(block)
        self._resumed.add(block)

    def begin(self) -> None:
        """Finish the empty files at the front."""
        self._finish_files()

    def go_on(self, block: int, view: memoryview) -> None:
        """Continue hashing as far as blocks have arrived; one thread at a time, while the others fetch."""
        with self._lock:
            if block >= 0:
                self._arrived.add(block)
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                if self._next not in self._arrived:
                    self._busy = False
                    return
                self._arrived.discard(self._next)
            self._add(self._next, view if self._next == block else None)
            self._next += 1

    def _add(self, block: int, view: memoryview | None) -> None:
        if view is None and block in self._resumed:
            self._check(block)
        filled = 0
        for part in self._row.parts(block):
            if view is not None:
                self._digest.update(view[filled : filled + part.length])
            else:
                _hash_part(self._folder / stored_path(part.entry), part.offset, part.length, self._digest)
            filled += part.length
            self._hashed += part.length
            self._finish_files()

    def _check(self, block: int) -> None:
        digest, parts = hashlib.sha256(), list(self._row.parts(block))
        try:
            for part in parts:
                _hash_part(self._folder / stored_path(part.entry), part.offset, part.length, digest)
            found = digest.hexdigest()
        except FileNotFoundError:
            found = ""
        if found != self._journal.blocks[block]:
            path = stored_path(parts[0].entry)
            raise Damaged(parts[0].entry, found, f"{path} was changed on this node before all of it had arrived")

    def _finish_files(self) -> None:
        entries = self._row.entries
        while self._file < len(entries) and self._hashed == entries[self._file].size:
            entry = entries[self._file]
            path, sha256 = self._folder / stored_path(entry), self._digest.hexdigest()
            compare(entry, sha256)
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                path.chmod(0o444)
            except OSError as error:
                raise local_trouble(error, path) from error
            self.found[entry.path] = sha256
            self._progress.add(0, 1)
            self._file, self._hashed, self._digest = self._file + 1, 0, hashlib.sha256()


def _take_room(path: Path, size: int) -> None:
    """Allocate the space at once, so that a full disk shows before the work is done."""
    if path.exists() and path.stat().st_size == size:
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def _write_part(path: Path, view: memoryview, offset: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_at(descriptor, view, offset)
    finally:
        os.close(descriptor)


def _hash_part(path: Path, offset: int, length: int, digest: Any) -> None:
    # In pieces that stay in the processor's cache between reading and hashing.
    piece = memoryview(bytearray(min(length, _HASHED_BYTES)))
    with path.open("rb", buffering=0) as file:
        for at in range(offset, offset + length, len(piece) or 1):
            view = piece[: min(len(piece), offset + length - at)]
            # Fewer bytes if the file was truncated.
            digest.update(view[: os.preadv(file.fileno(), [view], at)])
