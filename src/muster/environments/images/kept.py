"""Images that Muster made on this host: which there are, when each was last used, and making room. Standard library.

Whoever uses an image holds a shared lock, which ends with its process; one that is held is never removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from muster.environments.images.command import APPTAINER, Engine
from muster.paths import environments_dir

_LABEL = "muster.built"
_SHOWN = "{{.Id}}\t{{.Size}}\t{{json .RepoTags}}"

Ask = Callable[[Sequence[str]], "subprocess.CompletedProcess[bytes]"]
"""Runs a command of the engine that answers soon."""


@dataclass(frozen=True)
class Kept:
    """An image that may be removed when room is needed."""

    id: str
    """The engine's id; for apptainer the image's file."""
    names: tuple[str, ...]
    size: int
    used_at: float
    """When a job last began with it; 0 where none did."""
    in_use: bool

    @property
    def key(self) -> str:
        return Path(self.id).name[:12]


def label() -> str:
    """What an image that Muster makes is labelled with: whose it is, and where the locks lie that tell of its use.

    An engine has the images of everybody on the host; of those whose locks lie elsewhere, none is known to be free.
    """
    return f"{_LABEL}={os.getuid()}-{hashlib.sha256(str(images_dir()).encode()).hexdigest()[:12]}"


def images_dir() -> Path:
    """What is known of images, their locks, and apptainer's files."""
    folder = environments_dir() / ".images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def hold(image: str) -> int:
    """A descriptor that keeps an image from being removed while it is open; notes that it is used now."""
    lock = os.open(_lock(image), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    os.utime(lock)
    return lock


@contextmanager
def held(image: str) -> Iterator[None]:
    """An image that nobody removes meanwhile."""
    lock = hold(image)
    try:
        yield
    finally:
        os.close(lock)


def listing(engine: Engine, ask: Ask) -> list[Kept]:
    """The images that Muster made, the one used last first."""
    found = _files() if engine.kind == APPTAINER else _labelled(engine, ask)
    return sorted(found, key=lambda item: item.used_at, reverse=True)


def remove(engine: Engine, image: Kept, ask: Ask) -> bool:
    """Remove an image unless a job or a container uses it."""
    lock = os.open(_lock(image.id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if engine.kind == APPTAINER:
            Path(image.id).unlink(missing_ok=True)
            return True
        # By its names: an engine refuses to remove by its id what has several.
        return ask([engine.program, "rmi", *(image.names or (image.id,))]).returncode == 0
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def evict(engine: Engine, ask: Ask, limit_bytes: int, keep: str) -> list[str]:
    """Remove the least recently used until the rest fits; what is in use stays, and counts."""
    images = listing(engine, ask)
    total = sum(image.size for image in images)
    evicted = []
    for image in reversed(images):
        if total <= limit_bytes:
            break
        if image.id != _plain(keep) and remove(engine, image, ask):
            total -= image.size
            evicted.append(image.names[0] if image.names else image.key)
    return evicted


def _labelled(engine: Engine, ask: Ask) -> list[Kept]:
    listed = ask([engine.program, "images", "--quiet", "--no-trunc", "--filter", f"label={label()}"])
    ids = sorted({_plain(text) for text in listed.stdout.decode().split()}) if listed.returncode == 0 else []
    if not ids:
        return []
    shown = ask([engine.program, "image", "inspect", "--format", _SHOWN, *ids])
    found = []
    for line in shown.stdout.decode().splitlines():
        image, size, names = line.split("\t")
        found.append(_kept(_plain(image), tuple(json.loads(names) or ()), int(size)))
    return found


def _files() -> list[Kept]:
    # One that was never used may be on its way still.
    found = [path for path in images_dir().glob("*.sif") if _lock(str(path)).exists()]
    return [_kept(str(path), (path.name,), path.stat().st_size) for path in found]


def _kept(image: str, names: tuple[str, ...], size: int) -> Kept:
    try:
        lock = os.open(_lock(image), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return Kept(image, names, size, 0.0, False)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        in_use = False
    except BlockingIOError:
        in_use = True
    finally:
        used_at = os.fstat(lock).st_mtime
        os.close(lock)
    return Kept(image, names, size, used_at, in_use)


def _lock(image: str) -> Path:
    return images_dir() / f"{hashlib.sha256(_plain(image).encode()).hexdigest()[:24]}.use"


def _plain(image: str) -> str:
    return image.removeprefix("sha256:")
