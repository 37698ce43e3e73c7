"""Mounts below an attempt's folder: read-only views of cached data, and storage that is read over FUSE."""

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
    """Show a folder or file somewhere else, where nobody can write to it; False where this user may not mount."""
    flags = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
    if _mount(source, target, _MS_BIND) != 0:
        return False
    if _mount(source, target, flags) != 0:
        unmount(target)
        return False
    return True


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
    # Lazily: a process that is about to end may still stand in it.
    return int(_libc.umount2(os.fsencode(target), _MNT_DETACH)) == 0


def release(folder: Path) -> list[str]:
    """Unmount everything below a folder, the deepest first; returns what was there."""
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
    """How an ordinary user unmounts FUSE."""
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    if program is None:
        return False
    with spawning:
        return subprocess.run([program, "-uz", target], capture_output=True, check=False).returncode == 0


def _mount(source: Path, target: Path, flags: int) -> int:
    return int(_libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None))


def _unescape(text: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text
