"""Images that Muster made on this host: a list, when each was last used, and making room. Standard library only.

A process that uses an image holds a shared lock, which ends with it; an image that is locked is never removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.environments.images.command import APPTAINER, Engine
from muster.host.cache import UseLocks, make_room
from muster.host.locks import HeldLock
from muster.paths import environments_dir

_LABEL = "muster.built"
_SHOWN = "{{.Id}}\t{{.Size}}\t{{json .RepoTags}}"

Ask = Callable[[Sequence[str]], "subprocess.CompletedProcess[bytes]"]
"""Runs a command of the engine that answers quickly."""


@dataclass(frozen=True)
class Kept:
    """An image that may be removed when room is needed."""

    id: str
    """The engine's id; for apptainer the image's file."""
    names: tuple[str, ...]
    size: int
    used_at: float
    """When a job last started with it; 0 if none did."""
    in_use: bool

    @property
    def key(self) -> str:
        return _short(self.id)

    @property
    def name(self) -> str:
        return self.names[0] if self.names else self.key


def label() -> str:
    """The label of images that Muster makes: the owner, and the folder of the locks that show their use.

    An engine has the images of everybody on the host; if an image's locks are elsewhere, it is not known to be free.
    """
    return f"{_LABEL}={os.getuid()}-{hashlib.sha256(str(images_dir()).encode()).hexdigest()[:12]}"


def images_dir() -> Path:
    """The records and locks of images, and apptainer's files."""
    folder = environments_dir() / ".images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def hold(image: str) -> HeldLock:
    """Keep an image from being removed, and note that it is used now."""
    return _use().hold(_lock_key(image))


def listing(engine: Engine, ask: Ask) -> list[Kept]:
    """The images that Muster made, the last used first."""
    found = _files() if engine.kind == APPTAINER else _labelled(engine, ask)
    return sorted(found, key=lambda item: item.used_at, reverse=True)


def remove(engine: Engine, image: Kept, ask: Ask) -> bool:
    """Remove an image unless a job or a container uses it."""
    lock = _use().claim(_lock_key(image.id))
    if lock is None:
        return False
    with lock:
        if engine.kind == APPTAINER:
            Path(image.id).unlink(missing_ok=True)
            return True
        # By its names: an engine refuses to remove an image with several names by its id.
        return ask([engine.program, "rmi", *(image.names or (image.id,))]).returncode == 0


def evict(engine: Engine, ask: Ask, limit_bytes: int, keep: str) -> list[str]:
    """Remove the least recently used images until the rest fits; those in use stay, and count."""
    images = listing(engine, ask)
    room = make_room(
        images, lambda image: remove(engine, image, ask), lambda used: used <= limit_bytes, keep=(_short(_plain(keep)),)
    )
    return [image.name for image in reversed(images) if image.key in room.removed]


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
    # One that was never used may not be complete yet.
    found = [path for path in images_dir().glob("*.sif") if _use().used_at(_lock_key(str(path)))]
    return [_kept(str(path), (path.name,), path.stat().st_size) for path in found]


def _kept(image: str, names: tuple[str, ...], size: int) -> Kept:
    locks, key = _use(), _lock_key(image)
    return Kept(image, names, size, locks.used_at(key), locks.is_used(key))


def _use() -> UseLocks:
    return UseLocks(images_dir())


def _lock_key(image: str) -> str:
    return hashlib.sha256(_plain(image).encode()).hexdigest()[:24]


def _plain(image: str) -> str:
    return image.removeprefix("sha256:")


def _short(image: str) -> str:
    return Path(image).name[:12]
