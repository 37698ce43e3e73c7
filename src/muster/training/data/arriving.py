"""A folder whose files arrive while the training runs (an input in mode `stream`): reading one waits for it."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from muster.host.files import read_json
from muster.storage.connectors.base import TransferError
from muster.training.data.files import Expected, Files, Local
from muster.wire.codec import from_json, to_json
from muster.wire.data.arriving import FAILED, LIST, LOCK, Coming, Wish

_LOOK_S = 0.05
_ALIVE_S = 1.0


class ArrivingFiles(Files):
    """Files below a folder that a node's mover fills."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.where = folder, str(folder)
        self._coming = from_json(Coming, read_json(folder / LIST))
        self._sizes = dict(self._coming.files)

    def names(self) -> list[str]:
        return sorted(path for path in self._sizes if "/" not in path)

    def read(self, name: str) -> bytes:
        return self._there(name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        return self._there(name).open("rb")

    def fetch(self, name: str, expected: Expected | None) -> Local:
        # Verified on arrival, by its registered hash or by the version that the storage reports.
        return Local(self._there(name))

    def will_fetch(self, names: Iterable[str]) -> None:
        """Ask for these files first; if the request cannot be written, they still arrive, later."""
        wanted = tuple(name for name in names if name in self._sizes and not (self.folder / name).exists())
        if not wanted:
            return
        line = json.dumps(to_json(Wish(wanted))).encode() + b"\n"
        with suppress(OSError):
            descriptor = os.open(self._coming.wishes, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def _there(self, name: str) -> Path:
        """The file, once it has arrived; raises if it will not."""
        path = self.folder / name
        if path.exists():
            return path
        if name not in self._sizes:
            raise FileNotFoundError(f"{self.where} has no file {name!r}")
        self.will_fetch([name])
        waiting = threading.Event()
        looked_at = time.monotonic()
        while not path.exists():
            waiting.wait(_LOOK_S)
            if time.monotonic() - looked_at > _ALIVE_S:
                looked_at = time.monotonic()
                self._check(path)
        return path

    def _check(self, path: Path) -> None:
        """Raise if the mover has failed or ended."""
        with suppress(FileNotFoundError):
            why = (self.folder / FAILED).read_text()
            raise TransferError("data_unavailable", f"{path.name} does not arrive: {why}")
        if _is_free(self.folder / LOCK) and not path.exists():
            raise TransferError(
                "data_unavailable", f"{path.name} does not arrive: the process that fetched {self.where} has ended"
            )


def _is_free(lock: Path) -> bool:
    """Whether no process holds the lock; its folder and file may be read-only."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
