"""The folder of a file server on its node: made, recognised, measured and removed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from muster.host.files import PRIVATE, write_json
from muster.host.locks import FileLock, HeldLock
from muster.paths import FileServerPaths, file_servers_dir

_LOCK_PATIENCE_S = 30.0


class Impossible(Exception):
    """It cannot serve here, and trying again does not help; the text says why and what to do."""


def held(paths: FileServerPaths) -> HeldLock:
    """Lock the folder for this process: one that an earlier attempt left behind may take a moment to end."""
    lock = FileLock(paths.lock).acquire_within(_LOCK_PATIENCE_S)
    if lock is None:
        raise Impossible(f"another process on this node holds {paths.root}. End it, and restart the file server.")
    return lock


def opened(name: str, owner: str, wanted: str | None) -> FileServerPaths:
    """The file server's own folder, created if missing; raises Impossible if it belongs to something else."""
    root = Path(wanted) if wanted else file_servers_dir() / f"{name}-{owner[:8]}"
    paths = FileServerPaths(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if paths.owner.exists():
            _check_owner(paths, owner)
        elif any(root.iterdir()):
            raise Impossible(f"{root} holds files that are not this file server's. Give an empty or new folder.")
        write_json(paths.owner, {"name": name, "owner": owner})
        paths.data.mkdir(exist_ok=True)
        for folder in (paths.state, paths.recovery, paths.fills):
            folder.mkdir(mode=0o700, exist_ok=True)
        # Clients are other accounts, which must see nothing but the data.
        root.chmod(0o711)
        paths.data.chmod(0o755)
        paths.state.chmod(0o700)
    except OSError as error:
        raise Impossible(f"{root} cannot be used: {error.strerror}. Give another --folder.") from error
    return paths


def _check_owner(paths: FileServerPaths, owner: str) -> None:
    try:
        found = json.loads(paths.owner.read_text())
    except ValueError:
        found = {}
    if found.get("owner") != owner:
        other = found.get("name", "?")
        raise Impossible(f"{paths.root} belongs to another file server ({other}). Give another --folder.")


def used_bytes(paths: FileServerPaths) -> int:
    """The size of its files, with those that are being fetched."""
    total = 0
    for top in (paths.data, paths.fills):
        for base, _, names in os.walk(top):
            for name in names:
                try:
                    total += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118
                except OSError:
                    continue  # it has just been moved
    return total


def free_bytes(paths: FileServerPaths) -> int:
    return shutil.disk_usage(paths.root).free


def remove(paths: FileServerPaths) -> None:
    """Remove the data, and the folder with them."""
    for folder in (paths.data, paths.state):
        shutil.rmtree(folder, ignore_errors=True)
    paths.owner.unlink(missing_ok=True)
    try:
        paths.root.rmdir()
    except OSError:
        pass  # it was there before, or is a mount point


def write_private(path: Path, text: str) -> None:
    """A file that only this account reads."""
    path.write_text(text)
    path.chmod(PRIVATE)
