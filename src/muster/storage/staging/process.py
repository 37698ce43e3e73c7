"""The mover: a child of the agent that carries out one transfer.

It reads its request from standard input (one line of JSON, so that no token shows in a process list), says on standard
output how far it is, and asks there for fresh tokens. It ends when its standard input does, so it never outlives its
agent; a staged tree stays held until then.

    -> {"do": "stage" | "copy" | "send" | …, …}
    <- {"progress": {…}}
    <- {"need": [path, …]}          -> {"token": …, "tokens": {path: …}}
    <- {"done": {…}}  or  {"failed": {"code": …, "message": …, "final": …}}
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from muster.storage.connectors.files import Folder
from muster.storage.connectors.remotes import open_remote, single_name
from muster.storage.connectors.web import Web
from muster.storage.staging.cache import Cache
from muster.storage.staging.copying import copy_frame, copy_in, copy_out
from muster.storage.staging.gateway import Mounted
from muster.storage.staging.model import Entry, Progress, Sink, Source, TransferError, Unwanted, check_entries
from muster.storage.staging.stage import check_room, stage
from muster.storage.staging.upload import Sending, measure, send
from muster.wire.access import Access
from muster.wire.codec import from_json

_TELL_S = 0.5
_END_S = 15.0


def main() -> None:
    line = Line()
    try:
        request = line.next()
        done = _JOBS[request["do"]](request, line)
        line.say({"done": done})
    except TransferError as error:
        line.say({"failed": {"code": error.code, "message": error.message, "final": error.final}})
    except Unwanted:
        return
    # What is held stays held until the agent has taken it over.
    line.wait_closed()
    for close in line.at_end:
        close()


class Line:
    """The two ways between agent and mover."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.at_end: list[Callable[[], None]] = []
        self.closed = threading.Event()
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._saying = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._tell, daemon=True).start()

    def next(self) -> dict[str, Any]:
        answer = self._answers.get()
        if answer is None:
            raise Unwanted
        return answer

    def say(self, message: Mapping[str, Any]) -> None:
        try:
            with self._saying:
                os.write(1, json.dumps(message).encode() + b"\n")
        except OSError:
            self.progress.stop.set()

    def refresh(self, paths: list[str]) -> Mapping[str, Any]:
        self.say({"need": paths})
        return self.next()

    def wait_closed(self) -> None:
        self.closed.wait()

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            self._answers.put(json.loads(line))
        self.closed.set()
        self.progress.stop.set()
        self._answers.put(None)
        # A read that hangs must not keep a process that nobody waits for.
        time.sleep(_END_S)
        os._exit(1)

    def _tell(self) -> None:
        told: dict[str, Any] = {}
        while not self.closed.wait(_TELL_S):
            now = self.progress.to_json()
            if now != told and now["total_files"]:
                told = now
                self.say({"progress": now})


def _stage(request: Mapping[str, Any], line: Line) -> dict[str, Any]:
    """Bring an input into the cache; with `copy_to`, give the job a copy of its own."""
    access, what = from_json(Access, request["access"]), str(request["what"])
    remote = open_remote(access, request.get("server") or {}, line.refresh)
    cache = Cache(Path(request["cache"]), request.get("cache_bytes"))
    where = f"{access.kind}:{access.url}"
    held, entries = stage(remote, where, what, _announced(access), cache, line.progress)
    fetched = held.size - line.progress.resumed_bytes
    if request.get("copy_to"):
        target = Path(request["copy_to"])
        check_room(target, held.size, what)
        line.progress.begin("copying")
        copy_out(held.data, entries, target, single_name(access), line.progress)
    return {
        "digest": held.digest,
        "data": str(held.data),
        "one_file": single_name(access) if not entries[0].path else None,
        "bytes": held.size,
        "files": held.files,
        "fetched_bytes": max(0, fetched),
        "found": [[entry.path, entry.size, entry.sha256, entry.version] for entry in _new_hashes(access, entries)],
    }


def _copy(request: Mapping[str, Any], line: Line) -> dict[str, Any]:
    """Give the job its own copy of a local input, hashed on the way."""
    access, what, target = from_json(Access, request["access"]), str(request["what"]), Path(request["copy_to"])
    source = Folder(access.url, access.label)
    entries = _merged(source.listing(), _announced(access))
    progress = line.progress
    progress.total_bytes, progress.total_files = sum(entry.size for entry in entries), len(entries)
    check_room(target, progress.total_bytes, what)
    copy_frame(Path(access.url), target)
    hashes = copy_in(source, entries, target, single_name(access), progress)
    found = [[entry.path, entry.size, hashes[entry.path], entry.version] for entry in entries]
    return {
        "one_file": single_name(access) if entries and not entries[0].path else None,
        "bytes": progress.total_bytes,
        "files": len(entries),
        "found": found if access.asset and _announced(access) is None else [],
    }


def _send(request: Mapping[str, Any], line: Line) -> dict[str, Any]:
    """Bring files to an output's place."""
    access = from_json(Access, request["access"])
    sink: Sink = open_remote(access, request.get("server") or {}, line.refresh)  # type: ignore[assignment]
    files = [
        Sending(Path(item["path"]), item["name"], item["size"], item["sha256"], item.get("already"))
        for item in request["files"]
    ]
    if isinstance(sink, Web):
        names = [name for file in files for name in (file.name, file.already) if name is not None]
        sink.prefetch([*names, *(request.get("remove") or ())])
    send(sink, files, line.progress)
    for name in request.get("remove") or ():
        sink.remove(name)
    return {"files": len(files), "bytes": line.progress.total_bytes}


def _mount(request: Mapping[str, Any], line: Line) -> dict[str, Any]:
    """Show a source at a place without staging it; it stays until the agent closes the line."""
    access = from_json(Access, request["access"])
    remote = open_remote(access, request.get("server") or {}, line.refresh)
    entries = _announced(access) or check_entries(remote.listing(), access.label)
    named = [Entry(entry.path or single_name(access), entry.size, entry.version) for entry in entries]
    one = None if entries and entries[0].path else single_name(access)
    source = remote if one is None else _One(remote, entries[0])
    line.at_end.append(Mounted(source, named, Path(request["target"])).close)
    return {"one_file": one, "bytes": sum(entry.size for entry in entries), "files": len(entries)}


class _One:
    """A source that is one file, by its name."""

    def __init__(self, source: Source, entry: Entry) -> None:
        self._source = source
        self._entry = entry

    def listing(self) -> list[Entry]:
        return [self._entry]

    def read(self, entry: Entry, offset: int, view: memoryview) -> None:
        self._source.read(self._entry, offset, view)


def _measured(request: Mapping[str, Any], line: Line) -> dict[str, Any]:
    return {"files": measure(Path(request["folder"]), request.get("known") or {})}


def _announced(access: Access) -> list[Entry] | None:
    if access.manifest is None:
        return None
    entries = [Entry(item.path, item.size, _pin(access.kind, item.etag), item.sha256) for item in access.manifest]
    return check_entries(entries, access.label)


def _pin(kind: str, etag: str | None) -> str:
    """An ETag as it is compared: over HTTP by the service itself, which writes it in quotes."""
    bare = (etag or "").strip('"')
    return f'"{bare}"' if bare and kind in ("azure-blob", "azure-file", "muster", "http") else bare


def _merged(listed: list[Entry], announced: list[Entry] | None) -> list[Entry]:
    """What lies there, held against what was registered."""
    if announced is None:
        return check_entries(listed, "the input")
    there = {entry.path: entry for entry in listed}
    for entry in announced:
        if entry.path not in there or there[entry.path].size != entry.size:
            raise TransferError(
                "data_unavailable", f"{entry.stored} is not what was registered. Register a new version."
            )
    return [Entry(entry.path, entry.size, there[entry.path].version, entry.sha256) for entry in announced]


def _new_hashes(access: Access, entries: list[Entry]) -> list[Entry]:
    """What a first download found out about a registered asset."""
    if access.asset is None:
        return []
    known = {item.path for item in access.manifest or () if item.sha256}
    return [entry for entry in entries if entry.path not in known]


_JOBS: dict[str, Callable[[Mapping[str, Any], Line], dict[str, Any]]] = {
    "stage": _stage,
    "copy": _copy,
    "send": _send,
    "measure": _measured,
    "mount": _mount,
}
