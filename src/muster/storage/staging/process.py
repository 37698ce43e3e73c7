"""The mover: a child of the agent that carries out one transfer.

It reads its request from standard input, so that no token shows in a process list, reports its progress on standard
output, and asks there for fresh tokens (see `messages`). It ends when its standard input does, so it never outlives
its agent; a staged tree stays held until then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.host.children import Parent, ParentGone
from muster.storage.connectors.base import TransferError, files_at
from muster.storage.connectors.credentials import FreshTokens
from muster.storage.connectors.files import Folder
from muster.storage.connectors.opening import open_access, open_output, single_name
from muster.storage.connectors.web import Web
from muster.storage.peers.fetching import Nobody
from muster.storage.staging.arriving import Arrival
from muster.storage.staging.cache import Cache
from muster.storage.staging.copying import copy_frame, copy_in, copy_out
from muster.storage.staging.download import local_trouble
from muster.storage.staging.gateway import Mounted
from muster.storage.staging.messages import (
    BlocksHeard,
    Bring,
    Check,
    Copy,
    Done,
    Failure,
    Measure,
    Mount,
    MountShare,
    Offer,
    ProgressReport,
    Report,
    Request,
    Send,
    Stage,
)
from muster.storage.staging.model import Progress, Unwanted, check_entries, stored_path, total_size
from muster.storage.staging.nfs import MountedShare
from muster.storage.staging.packing import offer
from muster.storage.staging.stage import Together, check_room, stage
from muster.storage.staging.upload import check, measure, send
from muster.wire.codec import from_json, to_json
from muster.wire.data.access import PEERS, Access, FileEntry, HashedFile, where_of
from muster.wire.node.peers import BlocksAnswer, BlocksReport

_REPORT_S = 0.5
_STILL_REPORTS = 10
_END_S = 15.0


def main() -> None:
    line = Line()
    try:
        request: Request = from_json(Request, line.receive())  # type: ignore[arg-type]
        line.say(_answer(request, line))
    except (Unwanted, ParentGone):
        return
    # What is held stays held until the agent has taken it over.
    line.closed.wait()
    for close in line.at_end:
        close()


def _answer(request: Request, line: Line) -> Report:
    try:
        return Report(done=_carried_out(request, line))
    except TransferError as error:
        return _failed(error)
    except OSError as error:
        # The node's own disk, or a folder that was changed meanwhile.
        cache = getattr(request, "cache", "") or "/"
        return _failed(local_trouble(error, Path(error.filename or f"{cache}/cache")))


def _failed(error: TransferError) -> Report:
    return Report(failed=Failure(error.code, error.message, error.final, error.next))


class Line:
    """The mover's connection to its agent."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.at_end: list[Callable[[], None]] = []
        self._asking = threading.Lock()
        self._parent = Parent(ended=self.progress.stop.set, exit_after_s=_END_S)
        self.receive = self._parent.receive
        self.closed = self._parent.gone
        threading.Thread(target=self._report, daemon=True).start()

    def say(self, report: Report) -> None:
        self._parent.send(to_json(report))

    def refresh(self, paths: list[str]) -> FreshTokens:
        return from_json(FreshTokens, self._ask(Report(need=tuple(paths))))

    def exchange(self, report: BlocksReport) -> BlocksAnswer | None:
        """The server's answer about other nodes; None where it could not be asked."""
        return from_json(BlocksHeard, self._ask(Report(blocks=report))).answer

    def _ask(self, question: Report) -> Any:
        # One at a time: answers come in the order of the questions.
        with self._asking:
            self.say(question)
            return self.receive()

    def _report(self) -> None:
        sent: ProgressReport | None = None
        unchanged = 0
        while not self.closed.wait(_REPORT_S):
            now = self.progress.report()
            unchanged = unchanged + 1 if now == sent else 0
            # A standstill is reported too, less often: an old rate would suggest that data still moves.
            if unchanged % _STILL_REPORTS == 0:
                sent = now
                # Before there is anything to count, only that it is alive.
                self.say(Report(progress=now if now.total_files else None))


def _carried_out(request: Request, line: Line) -> Done:
    match request:
        case Stage():
            return _stage(request, line)
        case Bring():
            return _bring(request, line)
        case Offer():
            return _offer(request, line)
        case Copy():
            return _copy(request, line.progress)
        case Send():
            return _send(request, line)
        case Mount():
            return _mount(request, line)
        case MountShare():
            share = MountedShare(request.host, request.port, request.export, Path(request.target), request.read_only)
            line.at_end.append(share.close)
            return Done()
        case Check():
            check(open_output(request.access, request.server, line.refresh), request.name)
            return Done()
        case Measure():
            return Done(measured=measure(Path(request.folder), request.known))


def _stage(request: Stage, line: Line) -> Done:
    access = request.access
    has_source = access.kind != PEERS
    source = open_access(access, request.server, line.refresh) if has_source else Nobody(access.label)
    cache = Cache(Path(request.cache))
    together = Together(line.exchange, request.node, has_source) if request.shared else None
    where = request.place or where_of(access)
    held, entries = stage(source, where, request.what, _announced(access), cache, line.progress, together)
    if request.copy_to:
        target = Path(request.copy_to)
        check_room(target, held.size, request.what)
        line.progress.begin("copying")
        copy_out(held.data, entries, target, single_name(access), line.progress)
    # Held by its lock, which must not be garbage-collected.
    line.at_end.append(held.release)
    return Done(
        len(held.tree.files),
        held.size,
        held.digest,
        str(held.data),
        one_file=None if entries[0].path else single_name(access),
        found=_new_hashes(access, entries),
    )


def _bring(request: Bring, line: Line) -> Done:
    """Return once the job can start; the rest arrives meanwhile."""
    access = request.access
    source = open_access(access, request.server, line.refresh)
    entries = _announced(access) or check_entries(files_at(source), access.label)
    if not entries or not entries[0].path:
        raise TransferError("bad_input", f"{request.what}: mode stream is for folders that hold files")
    arrival = Arrival(
        source,
        where_of(access),
        request.what,
        entries,
        Cache(Path(request.cache)),
        Path(request.wishes),
        line.progress,
        Together(line.exchange, request.node) if request.shared else None,
    )
    line.at_end.append(arrival.close)
    arrival.begin()

    def go_on() -> None:
        try:
            failed = arrival.go_on()
            line.say(_failed(failed) if failed else Report(arrived=True))
        except (Unwanted, ParentGone):
            return

    threading.Thread(target=go_on, name="arriving", daemon=True).start()
    return Done(len(entries), total_size(entries), data=str(arrival.folder))


def _offer(request: Offer, line: Line) -> Done:
    cache = Cache(Path(request.cache))
    held = offer(Path(request.folder), request.place, request.what, cache, line.progress, line.exchange)
    line.at_end.append(held.release)
    (sha256,) = (file[1] for file in held.tree.files.values())
    return Done(1, held.size, sha256, str(held.data))


def _copy(request: Copy, progress: Progress) -> Done:
    access, target = request.access, Path(request.copy_to)
    source = Folder(access.url, access.label)
    entries = _merged(files_at(source), _announced(access))
    progress.total_bytes, progress.total_files = total_size(entries), len(entries)
    check_room(target, progress.total_bytes, request.what)
    copy_frame(Path(access.url), target)
    hashes = copy_in(source, entries, target, single_name(access), progress)
    is_new = access.asset is not None and access.manifest is None
    return Done(
        len(entries),
        progress.total_bytes,
        one_file=single_name(access) if entries and not entries[0].path else None,
        found=_hashed(replace(entry, sha256=hashes[entry.path]) for entry in entries) if is_new else (),
    )


def _send(request: Send, line: Line) -> Done:
    sink = open_output(request.access, request.server, line.refresh)
    if isinstance(sink, Web):
        names = [name for file in request.files for name in (file.name, file.already) if name is not None]
        sink.prefetch([*names, *request.remove])
    send(sink, request.files, line.progress)
    for name in request.remove:
        sink.remove(name)
    return Done(len(request.files), line.progress.total_bytes)


def _mount(request: Mount, line: Line) -> Done:
    access = request.access
    source = open_access(access, request.server, line.refresh)
    entries = _announced(access) or check_entries(files_at(source), access.label)
    by_path = {entry.path or single_name(access): entry for entry in entries}
    line.at_end.append(Mounted(source, by_path, Path(request.target)).close)
    return Done(
        len(entries), total_size(entries), one_file=None if entries and entries[0].path else single_name(access)
    )


def _announced(access: Access) -> list[FileEntry] | None:
    if access.manifest is None:
        return None
    entries = [replace(item, etag=(item.etag or "").strip('"'), token="") for item in access.manifest]
    return check_entries(entries, access.label)


def _merged(listed: list[FileEntry], announced: list[FileEntry] | None) -> list[FileEntry]:
    """The files that are there, compared with the registered ones."""
    if announced is None:
        return check_entries(listed, "the input")
    there = {entry.path: entry for entry in listed}
    for entry in announced:
        if entry.path not in there or there[entry.path].size != entry.size:
            raise TransferError(
                "data_unavailable", f"{stored_path(entry)} is not what was registered. Register a new version."
            )
    return [replace(entry, etag=there[entry.path].etag) for entry in announced]


def _new_hashes(access: Access, entries: list[FileEntry]) -> tuple[HashedFile, ...]:
    """The hashes of a registered asset's files, as its first download found them."""
    if access.asset is None:
        return ()
    known = {item.path for item in access.manifest or () if item.sha256}
    return _hashed(entry for entry in entries if entry.path not in known)


def _hashed(entries: Iterable[FileEntry]) -> tuple[HashedFile, ...]:
    return tuple(HashedFile(entry.path, entry.size, entry.sha256 or "") for entry in entries)
