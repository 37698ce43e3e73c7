"""What a job leaves behind: found after its end, and sent to the server."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from muster.agent.link import Backoff, Link, Trouble
from muster.host import hashing
from muster.host.http import Body
from muster.paths import AttemptPaths
from muster.wire.access import HashedFile
from muster.wire.node.agents import Order

log = logging.getLogger(__name__)

_PIECE = 1 << 20


@dataclass
class Found:
    """Files to keep, by the name under which they are kept; and what was left out, in words."""

    files: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def find(paths: AttemptPaths) -> Found:
    """Every regular file below `outputs`, `logs` and the uploads."""
    found = Found()
    root = paths.root
    for folder, name in ((paths.work / "outputs", "outputs"), (paths.work / "logs", "logs"), (paths.uploads, "")):
        if folder.is_symlink() and not _inside(folder, root):
            found.left_out.append(f"{name}: a link that leaves the job's folder")
        elif folder.is_dir():
            _walk(folder, name, root, (), found)
    return found


def settle(folder: Path, root: Path) -> list[str]:
    """When no process is left: links to files of the job become files themselves. What had to be left out, in words."""
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
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
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
    try:
        return path.resolve(strict=True).is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False


def readable(name: str) -> str:
    """A file name as UTF-8 text; bytes that are none are written as `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class Unreadable(Exception):
    """A file that was found and then could not be read."""


def send_all(
    order: Order, paths: AttemptPaths, link: Link, unwanted: threading.Event
) -> tuple[list[HashedFile], list[str]]:
    """Send every file that the job left, as often as it takes; what was sent, and what was left out, in words."""
    found = find(paths)
    sent: list[HashedFile] = []
    backoff = Backoff()
    for name, path in found.files.items():
        while not unwanted.is_set():
            try:
                sent.append(send(order, name, path, link))
                backoff.reset()
                break
            except Unreadable as error:
                found.left_out.append(f"{name}: {error}")
                break
            except Trouble as error:
                log.info("%s of %s was not sent, trying again: %s", name, paths.root.name, error)
                unwanted.wait(backoff.next_s())
    return sent, found.left_out


def send(order: Order, name: str, path: Path, link: Link) -> HashedFile:
    """Send one file in bounded memory. Called again after a failure."""
    try:
        digest, size = measure(path)
        sent = HashedFile(name, size, digest)
        with path.open("rb") as file:
            link.put_file(order, sent, body_of(file, size))
    except (PermissionError, FileNotFoundError, IsADirectoryError) as error:
        raise Unreadable(error.strerror or str(error)) from error
    return sent


def measure(path: Path) -> hashing.Measured:
    """A file's hash and size."""
    # A fifo that took the file's place must not hold the agent up.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable("not a regular file")
        return hashing.measure_open(file)


def body_of(file: BinaryIO, size: int) -> Body:
    """What is sent of a file: a small body of known length can be repeated on a stale connection."""
    return file.read() if size <= _PIECE else iter(partial(file.read, _PIECE), b"")
