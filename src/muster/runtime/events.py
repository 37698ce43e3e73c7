"""Appends events to the file that the agent ships. Never blocks on a server, and never ends a training script."""

import atexit
import json
import os
import sys
import threading
from typing import Mapping

from muster.runtime.values import Json


class EventFile:
    """One JSON line per event, in one write; safe with threads, forks and other processes on the same file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._fd = -1
        self._pid = 0
        self._cut = False
        self._warned = False
        self._lost = 0
        atexit.register(self._say_what_was_lost)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    def append(self, event: Mapping[str, Json]) -> None:
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        with self._lock:
            try:
                self._write_lost()
                self._write(line)
            except OSError as error:
                self._lost += 1
                self._warn(error)

    def _say_what_was_lost(self) -> None:
        with self._lock:
            try:
                self._write_lost()
            except OSError:
                pass

    def _write_lost(self) -> None:
        """Write first how many events were lost while the disk was full."""
        if self._lost:
            self._write(json.dumps({"kind": "lost", "count": self._lost}).encode() + b"\n")
            self._lost = 0

    def _write(self, line: bytes) -> None:
        if self._fd < 0 or self._pid != os.getpid():
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            self._pid = os.getpid()
        if self._cut:
            # A full disk cut the last line short; ended here, readers skip it.
            line = b"\n" + line
        self._cut = os.write(self._fd, line) != len(line)
        if self._cut:
            raise OSError("the disk took only a part of the line")

    def _warn(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        try:
            print("muster: metrics are not recorded: {} ({})".format(error, self._path), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            pass

    def _renew_lock(self) -> None:
        # Another thread of the parent may have held the lock during the fork; the parent reports its own losses.
        self._lock = threading.Lock()
        self._lost = 0
