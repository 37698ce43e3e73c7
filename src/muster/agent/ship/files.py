"""Files that a job leaves behind: found after its end, and sent to the server."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from muster.agent.link import Backoff, Link, Trouble
from muster.agent.ship import strays
from muster.errors import AccessDenied, UserError
from muster.host import hashing
from muster.host.children import Abandoned
from muster.host.files import despite_shortages, is_shortage
from muster.host.http import Body
from muster.paths import AttemptPaths
from muster.runtime.uploads import UNFINISHED
from muster.wire.data.access import HashedFile
from muster.wire.node.agents import Order

log = logging.getLogger(__name__)

_PIECE = 1 << 20
_SMALL_BYTES = 256 << 10
_BATCH_BYTES = 4 << 20
_BATCH_FILES = 256
_AT_ONCE = 4
_REPORT_S = 0.5
_MOST_NOTES = 5


@dataclass
class Found:
    """Files to keep, by the name under which they are kept; and descriptions of what was left out."""

    files: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    kept_too: list[str] = field(default_factory=list)
    """Descriptions of what is kept from other folders."""


def find(paths: AttemptPaths) -> Found:
    """Every regular file below `outputs`, `logs` and the uploads, and what tracking tools wrote elsewhere."""
    found = Found()
    root = paths.root
    for folder, name in ((paths.work / "outputs", "outputs"), (paths.work / "logs", "logs"), (paths.uploads, "")):
        if folder.is_symlink() and not _inside(folder, root):
            found.left_out.append(f"{name}: a link that leaves the job's folder")
        elif folder.is_dir():
            _walk(folder, name, root, (), found)
    found.files = {name: path for name, path in found.files.items() if not name.startswith(f"{UNFINISHED}/")}
    with suppress(OSError):
        began = paths.launch.stat().st_mtime
        stray, found.kept_too = despite_shortages(lambda: strays.find(paths.work, began))
        for kept_as, path in stray.items():
            found.files.setdefault(readable(kept_as), path)
    return found


def settle(folder: Path, root: Path) -> list[str]:
    """When no process is left: replace links to files of the job by the files. Returns what had to be left out."""
    found = Found()
    if folder.is_dir() and not folder.is_symlink():
        _walk(folder, "", root, (), found)
    files, here = list(found.files.values()), folder.resolve()
    linked = {path: path.resolve() for path in files if path.resolve() != here / path.relative_to(folder)}
    for path in [path for path in folder.rglob("*") if path.is_symlink()]:
        path.unlink()
    for path, source in linked.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, path)
        except OSError:
            shutil.copyfile(source, path)
    for path in files:
        with suppress(OSError):
            path.chmod(path.stat().st_mode | stat.S_IRUSR)
    return found.left_out


def _walk(folder: Path, name: str, root: Path, above: tuple[tuple[int, int], ...], found: Found) -> None:
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        found.left_out.append(f"{name}: a link to a folder that holds it")
        return
    try:
        entries = sorted(despite_shortages(lambda: list(os.scandir(folder))), key=lambda entry: entry.name)
    except OSError as error:
        found.left_out.append(f"{name}: {error.strerror}")
        return
    for entry in entries:
        shown = readable(entry.name)
        kept_as = f"{name}/{shown}" if name else shown
        path = Path(entry.path)
        if entry.is_symlink() and not _inside(path, root):
            found.left_out.append(f"{kept_as}: a link that leaves the job's folder")
        elif entry.is_dir():
            _walk(path, kept_as, root, (*above, here), found)
        elif entry.is_file():
            found.files.setdefault(kept_as, path)
        else:
            found.left_out.append(f"{kept_as}: not a regular file")


def _inside(path: Path, root: Path) -> bool:
    """Whether a link leads to the job's own files: not to the agent's records, which contain grants."""
    try:
        inner = path.resolve(strict=True).relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
    return len(inner.parts) > 1 and inner.parts[0] not in ("mpi", "inside", "publishing")


def readable(name: str) -> str:
    """A file name as UTF-8 text; invalid bytes are written as `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class Unreadable(Exception):
    """A file that was found and could not be read."""


@dataclass
class SentFiles:
    """The outcome of sending an attempt's files; filled in by several threads."""

    left_out: list[str]
    """In words."""
    kept_too: list[str] = field(default_factory=list)
    files: list[HashedFile] = field(default_factory=list)
    unsent: int = 0
    """When it was given up."""


def first_few(left_out: Sequence[str]) -> list[str]:
    """What was left out, in a few notes, however many files it was."""
    more = len(left_out) - _MOST_NOTES
    return [*left_out[:_MOST_NOTES], *([f"{more:,} more like these"] if more > 0 else [])]


def send_all(
    order: Order, paths: AttemptPaths, link: Link, unwanted: threading.Event, doing: Callable[[str], None]
) -> SentFiles:
    """Send every file that the job left, with retries: small ones batched, several calls at once."""
    found = find(paths)
    sent = SentFiles(list(found.left_out), list(found.kept_too))
    waiting: queue.SimpleQueue[Parcel] = queue.SimpleQueue()
    parcels = pack(found.files)
    for parcel in parcels:
        waiting.put(parcel)
    work = partial(_Sender(order, link, unwanted, sent).work, waiting)
    count = min(_AT_ONCE, len(parcels))
    senders = [threading.Thread(target=work, name=f"files-{number}", daemon=True) for number in range(count)]
    for sender in senders:
        sender.start()
    for sender in senders:
        while sender.is_alive():
            sender.join(_REPORT_S)
            if len(found.files) > _BATCH_FILES:
                doing(f"sending files: {len(sent.files):,} of {len(found.files):,}")
    doing("")
    sent.unsent = len(found.files) - len(sent.files) - (len(sent.left_out) - len(found.left_out))
    return sent


Parcel = list[tuple[str, Path]]
"""Files that are sent in one call, by the name under which they are kept."""


def pack(files: Mapping[str, Path]) -> list[Parcel]:
    """Small files together, large ones each by itself, in bounded memory."""
    parcels: list[Parcel] = []
    small: Parcel = []
    room = 0
    for name, path in files.items():
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
        if size > _SMALL_BYTES:
            parcels.append([(name, path)])
            continue
        if not small or size > room or len(small) >= _BATCH_FILES:
            small, room = [], _BATCH_BYTES
            parcels.append(small)
        small.append((name, path))
        room -= size
    return parcels


class _Sender:
    """Sends parcels, in a thread of its own."""

    def __init__(self, order: Order, link: Link, unwanted: threading.Event, sent: SentFiles) -> None:
        self._order = order
        self._link = link
        self._unwanted = unwanted
        self._sent = sent

    def work(self, waiting: queue.SimpleQueue[Parcel]) -> None:
        try:
            while not self._unwanted.is_set():
                self._send(waiting.get_nowait())
        except queue.Empty:
            pass
        finally:
            self._link.close()

    def _send(self, parcel: Parcel) -> None:
        backoff = Backoff()
        while not self._unwanted.is_set():
            try:
                self._sent.files += self._send_together(parcel) if len(parcel) > 1 else self._send_alone(*parcel[0])
                return
            except AccessDenied as error:
                self._again(parcel, error, backoff)
            except UserError as error:
                # Refused for good: whichever file is to blame, the others must not wait for it.
                if len(parcel) == 1:
                    self._sent.left_out.append(f"{parcel[0][0]}: the server refuses it: {error.message}")
                    return
                for item in parcel:
                    self._send([item])
                return
            except Abandoned:
                return
            except Trouble as error:
                self._again(parcel, error, backoff)

    def _again(self, parcel: Parcel, error: Exception, backoff: Backoff) -> None:
        log.info(
            "%s of %s (%d files) was not sent, trying again: %s", parcel[0][0], self._order.key, len(parcel), error
        )
        self._unwanted.wait(backoff.next_s())

    def _send_together(self, parcel: Parcel) -> list[HashedFile]:
        contents: list[tuple[HashedFile, bytes]] = []
        unreadable: list[str] = []
        for name, path in parcel:
            try:
                content = _content(path)
                contents.append((HashedFile(name, len(content), hashlib.sha256(content).hexdigest()), content))
            except (Unreadable, OSError) as error:
                if is_shortage(error):
                    raise
                unreadable.append(f"{name}: {getattr(error, 'strerror', None) or error}")
        if contents:
            self._link.put_files(self._order, contents)
        self._sent.left_out += unreadable
        return [file for file, _ in contents]

    def _send_alone(self, name: str, path: Path) -> list[HashedFile]:
        try:
            return [send(self._order, name, path, self._link, self._unwanted)]
        except Unreadable as error:
            self._sent.left_out.append(f"{name}: {error}")
            return []


def send(order: Order, name: str, path: Path, link: Link, unwanted: threading.Event) -> HashedFile:
    """Send one file in bounded memory. Called again after a failure."""
    try:
        digest, size = measure(path)
        sent = HashedFile(name, size, digest)
        with path.open("rb") as file:
            link.put_file(order, sent, body_of(file, size, unwanted))
    except (PermissionError, FileNotFoundError, IsADirectoryError) as error:
        raise Unreadable(error.strerror or str(error)) from error
    return sent


def _content(path: Path) -> bytes:
    with _opened(path) as file:
        return file.read()


def _opened(path: Path) -> BufferedReader:
    # A fifo that replaced the file must not block the agent.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Unreadable("not a regular file")
    return file


def measure(path: Path) -> hashing.Measured:
    """A file's hash and size."""
    with _opened(path) as file:
        return hashing.measure_open(file)


def body_of(file: BinaryIO, size: int, unwanted: threading.Event | None = None) -> Body:
    """The request body of a file: a small one of known length can be repeated on a stale connection."""
    return file.read() if size <= _PIECE else _pieces(file, unwanted)


def _pieces(file: BinaryIO, unwanted: threading.Event | None) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        if unwanted is not None and unwanted.is_set():
            raise Abandoned("nobody wants the file any more")
        yield piece
