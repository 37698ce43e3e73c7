"""Renames into folders, as reported by the kernel (inotify); without inotify none are seen."""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import threading
from pathlib import Path

log = logging.getLogger(__name__)

_MOVED_TO = 0x80
_IGNORED = 0x8000
_HEAD = struct.Struct("iIII")


class Renames:
    """Names that were renamed into each watched folder; callable from any thread."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._lock = threading.Lock()
        self._seen: dict[int, set[str]] = {}
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if self._libc else -1

    def watch(self, folder: Path) -> set[str]:
        """A set that `collect` fills from now on."""
        names: set[str] = set()
        if self._libc is None or self._descriptor < 0:
            return names
        with self._lock:
            number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _MOVED_TO)
            if number >= 0:
                self._seen[number] = names
            else:
                log.warning("renames in %s are not seen: %s", folder, os.strerror(ctypes.get_errno()))
        return names

    def collect(self) -> None:
        """Read the pending events."""
        if self._descriptor < 0:
            return
        with self._lock:
            while data := self._read():
                self._parse(data)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 65536)
        except OSError:
            return b""

    def _parse(self, data: bytes) -> None:
        offset = 0
        while offset < len(data):
            number, mask, _, length = _HEAD.unpack_from(data, offset)
            offset += _HEAD.size
            name = data[offset : offset + length].rstrip(b"\0")
            offset += length
            if mask & _IGNORED:
                self._seen.pop(number, None)
            elif number in self._seen:
                self._seen[number].add(os.fsdecode(name))
