"""The folder of one attempt on its node: made, marked, and removed."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

from muster.host import mounts
from muster.host.files import PRIVATE, read_json, remove_aside, remove_tree, write_json
from muster.paths import AttemptPaths, shared_memory_dir, user_runtime_dir
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.node.agents import Order

log = logging.getLogger(__name__)

# multiprocessing puts sockets below TMPDIR, and a socket's path may have 107 bytes.
_LONGEST_TMP = 60


def make(order: Order, paths: AttemptPaths) -> None:
    """Make the folders of an attempt."""
    paths.root.mkdir(parents=True, exist_ok=True)
    # First of all: in a folder without an order nothing was ever started.
    write_json(paths.order, to_json(order), mode=PRIVATE)
    inner = (paths.streams / "user_logs", paths.streams / "events", paths.work / "outputs", paths.work / "logs")
    for folder in (paths.work, paths.streams, paths.tmp, paths.uploads, paths.checkpoints, paths.inside, *inner):
        folder.mkdir(exist_ok=True)


def read_order(paths: AttemptPaths) -> Order | None:
    """The order that the folder was made for."""
    try:
        return from_json(Order, read_json(paths.order))
    except WireError:
        return None


def is_there(paths: AttemptPaths) -> bool:
    """Whether the folder is still the one that was made; clean-up jobs may have removed it."""
    return paths.order.exists() and (paths.streams / "user_logs").is_dir()


def mark_reported(paths: AttemptPaths) -> None:
    """Note that this attempt is reported to the server from now on."""
    with suppress(OSError):
        _reported(paths).touch(PRIVATE)


def was_reported(paths: AttemptPaths) -> bool:
    return _reported(paths).exists() or paths.launch.exists()


def _reported(paths: AttemptPaths) -> Path:
    return paths.root / "prepared"


def short_tmp(paths: AttemptPaths) -> Path:
    """The attempt's folder for temporary files, by a path short enough for sockets."""
    if len(str(paths.tmp)) <= _LONGEST_TMP:
        return paths.tmp
    link = _tmp_link(paths)
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if link.parent.stat().st_uid != os.getuid():
        return paths.tmp
    with suppress(FileExistsError):
        link.symlink_to(paths.tmp)
    return link


def remove(paths: AttemptPaths) -> bool:
    """Remove an attempt's folder, even with read-only folders that the job left; returns whether it is gone."""
    # Renamed first, so that a half-removed attempt is never taken for a whole one.
    gone = paths.root.with_name(f"{paths.root.name}.gone")
    try:
        _tmp_link(paths).unlink(missing_ok=True)
        shutil.rmtree(shared_memory_dir(paths.root), ignore_errors=True)
        mounts.release(paths.root)
        remove_tree(gone)
        remove_aside(paths.root, gone)
    except OSError as error:
        log.warning("%s is not removed: %s", paths.root, error)
    return not gone.exists() and not paths.root.exists()


def _tmp_link(paths: AttemptPaths) -> Path:
    return user_runtime_dir() / f"t-{hashlib.sha256(str(paths.root).encode()).hexdigest()[:12]}"
