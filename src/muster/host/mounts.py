"""Mounts below an attempt's folder: read-only views of cached data, NFS shares, FUSE mounts of storage."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from muster.host.children import spawning

log = logging.getLogger(__name__)

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def bind_read_only(source: Path, target: Path) -> bool:
    """Bind-mount a folder or file read-only; False where this user may not mount."""
    flags = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
    if _mount(str(source), target, _MS_BIND) != 0:
        return False
    if _mount(str(source), target, flags) != 0:
        unmount(target)
        return False
    return True


def mount_nfs(share: str, target: Path, options: str, read_only: bool) -> int:
    """Mount `HOST:/EXPORT` by NFS version 4; returns 0 or the errno."""
    flags = _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if read_only else 0)
    return ctypes.get_errno() if _mount(share, target, flags, "nfs4", options) != 0 else 0


@functools.cache
def allowed() -> bool:
    """Whether this process may mount: being root is not enough in most containers."""
    with tempfile.TemporaryDirectory(prefix="muster-mount-") as folder:
        target = Path(folder) / "target"
        target.mkdir()
        if not bind_read_only(Path(folder), target):
            return False
        return unmount(target)


def unmount(target: Path) -> bool:
    # Lazily: a process that is about to end may still use it as its working folder.
    return int(_libc.umount2(os.fsencode(target), _MNT_DETACH)) == 0


def release(folder: Path) -> list[str]:
    """Unmount everything below a folder, the deepest first; returns what was mounted."""
    found = below(folder)
    for target in found:
        if not unmount(Path(target)) and not _by_fusermount(target):
            log.warning("%s could not be unmounted: %s", target, os.strerror(ctypes.get_errno()))
    return found


def below(folder: Path) -> list[str]:
    """Mount points below a folder, the deepest first."""
    base = str(folder.resolve())
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    points = [_unescape(line.split(" ")[4]) for line in lines]
    return sorted((point for point in points if point.startswith(f"{base}/")), key=len, reverse=True)


def _by_fusermount(target: str) -> bool:
    """Unmount FUSE as an ordinary user."""
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    if program is None:
        return False
    with spawning:
        return subprocess.run([program, "-uz", target], capture_output=True, check=False).returncode == 0


def _mount(source: str, target: Path, flags: int, kind: str | None = None, options: str | None = None) -> int:
    given = [None if text is None else text.encode() for text in (kind, options)]
    return int(_libc.mount(os.fsencode(source), os.fsencode(target), given[0], flags, given[1]))


def _unescape(text: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text
