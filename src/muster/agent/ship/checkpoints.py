"""Checkpoints on the node: sent to the store when a job publishes them; fetched before it resumes.

A checkpoint is a file or folder directly in MUSTER_CHECKPOINT_DIR. While it is being written its name begins with `.`
or ends in `.tmp`; renaming it publishes it. One that was written under its final name counts once it has not changed
for a while.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.agent.link import Backoff, Link, Trouble
from muster.agent.ship import files
from muster.agent.ship.renames import Renames
from muster.defaults import CHECKPOINT_POLL_S
from muster.errors import Conflict, NotFound, UserError
from muster.host.files import despite_shortages, is_shortage
from muster.host.hashing import Measuring
from muster.host.sandbox.fence import folder_inside, open_inside
from muster.paths import AttemptPaths
from muster.wire.checkpoints import CheckpointFile, Publication
from muster.wire.codec import to_json
from muster.wire.data.access import HashedFile
from muster.wire.node.agents import AttemptKey, Order

log = logging.getLogger(__name__)

_LEFT_ALONE_S = 2.0
_PIECE = 1 << 20

Signature = tuple[tuple[str, int, int, int], ...]
"""Path, inode, time and size of every part."""


@dataclass
class Watched:
    """The checkpoints of one attempt."""

    order: Order
    paths: AttemptPaths
    unwanted: threading.Event
    renamed: set[str] = field(default_factory=set)
    """Names that were given by renaming: those checkpoints are complete."""
    taken: dict[str, Signature] = field(default_factory=dict)
    refused: bool = False
    """The attempt is over for the server, which accepts nothing more of it."""
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Entry:
    """A checkpoint as it is on disk."""

    path: Path
    at: float
    signature: Signature
    settled: bool


class Publisher(threading.Thread):
    """Sends what the jobs of this node publish."""

    def __init__(self, link: Link) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._link = link
        self._renames = Renames()
        self._watched: dict[AttemptKey, Watched] = {}
        self._wake = threading.Event()
        self._closing = False

    def watch(self, order: Order, paths: AttemptPaths, unwanted: threading.Event) -> None:
        self._watched[order.key] = Watched(order, paths, unwanted, self._renames.watch(paths.checkpoints))
        self._wake.set()

    def finish(self, order: Order, paths: AttemptPaths, unwanted: threading.Event) -> None:
        """No process is left: send the rest. Returns when the server has it."""
        self._take(self._watched.pop(order.key, Watched(order, paths, unwanted)))

    def close(self) -> None:
        self._closing = True
        self._wake.set()

    def run(self) -> None:
        while not self._closing:
            self._wake.wait(CHECKPOINT_POLL_S if self._watched else None)
            self._wake.clear()
            for watched in list(self._watched.values()):
                self._take(watched)
        self._renames.close()
        self._link.close()

    def _take(self, watched: Watched) -> None:
        try:
            with watched.lock:
                self._renames.collect()
                now = time.time()
                entries = despite_shortages(
                    lambda: look(watched.paths.checkpoints, watched.renamed, watched.taken, now)
                )
                for entry in entries:
                    if watched.refused or watched.unwanted.is_set():
                        return
                    if entry.settled and self._publish(watched, entry):
                        watched.taken[entry.path.name] = entry.signature
        except OSError as error:
            log.warning("the checkpoints of %s cannot be read: %s", watched.order.key, error)

    def _publish(self, watched: Watched, entry: Entry) -> bool:
        """Send one checkpoint, with retries; False when it changed meanwhile."""
        staged = watched.paths.root / "publishing"
        shutil.rmtree(staged, ignore_errors=True)
        backoff = Backoff()
        try:
            despite_shortages(lambda: _link_tree(entry.path, staged))
            manifest = despite_shortages(lambda: _manifest(entry.path, staged))
            while not watched.unwanted.is_set():
                try:
                    self._send(watched.order, entry, staged, manifest)
                    return True
                except UserError as error:
                    watched.refused = isinstance(error, (Conflict, NotFound))
                    log.warning("%s: the checkpoint %s is refused: %s", watched.order.key, entry.path.name, error)
                    return False
                except Trouble as error:
                    log.info("%s: %s was not sent, trying again: %s", watched.order.key, entry.path.name, error)
                    watched.unwanted.wait(backoff.next_s())
        except FileNotFoundError:
            log.info("%s: %s disappeared before it could be sent", watched.order.key, entry.path.name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return False

    def _send(self, order: Order, entry: Entry, staged: Path, manifest: tuple[HashedFile, ...]) -> None:
        identity = json.dumps([entry.path.name, to_json(manifest)], sort_keys=True)
        key = hashlib.sha256(identity.encode()).hexdigest()
        for file in manifest:
            with (staged / file.path).open("rb") as source:
                self._link.put_checkpoint_file(order, key, file, files.body_of(source, file.size))
        self._link.publish_checkpoint(Publication(order.run, order.attempt, entry.path.name, key, entry.at, manifest))


def look(folder: Path, renamed: Collection[str], taken: Mapping[str, Signature], now: float) -> list[Entry]:
    """Finished checkpoints that have not been sent in their current state, the oldest first."""
    found = []
    for item in os.scandir(folder) if folder.is_dir() else ():
        if not is_finished(item.name) or item.is_symlink():
            continue
        signature = _signature(Path(item.path))
        if signature and taken.get(item.name) != signature:
            status = item.stat(follow_symlinks=False)
            changed = max(part[2] for part in signature) / 1e9
            settled = item.name in renamed or now - changed > _LEFT_ALONE_S
            found.append(Entry(Path(item.path), status.st_ctime_ns / 1e9, signature, settled))
    return sorted(found, key=lambda entry: entry.at)


def is_finished(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".tmp")


Share = Callable[[int, Sequence[CheckpointFile], Path], bool]
"""Fetches a checkpoint's files into a folder together with other nodes; False: this node must fetch them alone."""


def fetch(
    order: Order, paths: AttemptPaths, link: Link, share: Share = lambda checkpoint, files, folder: False
) -> tuple[int | None, str | None, list[str]]:
    """Fetch the newest intact checkpoint; returns which it is, its folder, and a note about damaged ones.

    Raises when the server is away.
    """
    damaged: list[str] = []
    for checkpoint in order.resume:
        partial = paths.root / f"resume.{checkpoint}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            files = link.checkpoint(checkpoint, order.run)
            if not share(checkpoint, files, partial):
                for file in files:
                    _fetch_file(file, partial / file.target, checkpoint, order.run, link)
        except (Damaged, NotFound) as error:
            log.warning("%s: the checkpoint %s is skipped: %s", order.key, checkpoint, error)
            which = "the one before it" if damaged else "the newest checkpoint"
            damaged.append(f"{which} is damaged and passed over: {error}")
            shutil.rmtree(partial, ignore_errors=True)
            continue
        shutil.rmtree(paths.resume, ignore_errors=True)
        partial.rename(paths.resume)
        return checkpoint, str(paths.resume), damaged
    return None, None, damaged


class Damaged(Exception):
    """A file does not match its manifest."""


def _fetch_file(file: CheckpointFile, target: Path, checkpoint: int, run: str, link: Link) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    arrived = Measuring()
    with link.checkpoint_file(checkpoint, file, run) as source, target.open("wb") as out:
        while piece := source.read(_PIECE):
            arrived.add(piece)
            out.write(piece)
    if arrived.sha256 != file.sha256:
        raise Damaged(f"{file.path} is not what was published (SHA-256 {arrived.sha256})")


def _signature(path: Path) -> Signature:
    """A signature that changes with any of its files; empty when it is gone."""
    try:
        parts = [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]
        statuses = [(part, part.lstat()) for part in parts]
    except OSError as error:
        if is_shortage(error):
            raise
        return ()
    return tuple((str(part), status.st_ino, status.st_mtime_ns, status.st_size) for part, status in statuses)


def _link_tree(source: Path, target: Path) -> None:
    """Hard links to the same files: they stay when the job removes or replaces its own."""
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        if path.is_file() and not path.is_symlink():
            copy = target / (path.relative_to(source) if source.is_dir() else path.name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            _take(source.parent, path.relative_to(source.parent), copy)


def _take(folder: Path, inner: Path, copy: Path) -> None:
    """A hard link to one file, or a copy; a folder that was replaced by a link meanwhile is not followed."""
    with folder_inside(folder, inner.parent) as parent:
        try:
            os.link(inner.name, copy, src_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            # From a try that was interrupted.
            return
        except OSError:
            _copy(folder, inner, copy)


def _copy(folder: Path, inner: Path, copy: Path) -> None:
    """Copy the whole file, or leave nothing that could be taken for it."""
    try:
        with os.fdopen(open_inside(folder, inner), "rb") as reading, copy.open("xb") as writing:
            shutil.copyfileobj(reading, writing, _PIECE)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def _manifest(source: Path, staged: Path) -> tuple[HashedFile, ...]:
    found = []
    for path in sorted(staged.rglob("*")):
        if path.is_file() and not path.is_symlink():
            sha256, size = files.measure(path)
            found.append(HashedFile(path.relative_to(staged).as_posix(), size, sha256))
    if not found:
        raise FileNotFoundError(source)
    return tuple(found)
