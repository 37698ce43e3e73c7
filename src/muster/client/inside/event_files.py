"""TensorBoard's event files of runs on this machine: those of ended runs once, those of running ones as they grow."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from muster.client.api import Client
from muster.client.inside.event_follower import MARK
from muster.client.inside.tunnels import Session
from muster.errors import MusterError
from muster.host import frames
from muster.host.files import is_below, is_safe_path
from muster.host.streams import End
from muster.wire import states
from muster.wire.codec import WireError, from_json
from muster.wire.message import wire
from muster.wire.runs import RunView
from muster.wire.tunnels import TunnelTarget

_AGAIN_S = 3.0
_HEAD_BYTES = 16 << 10
_FOLLOWER = Path(__file__).with_name("event_follower.py")


@wire
class PieceHead:
    """The header of the next piece of an event file."""

    path: str
    offset: int
    size: int


def cache_folder(workspace: str) -> Path:
    """The folder of event files on this machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "muster" / "tensorboard" / workspace


class Mirror:
    """The event files of some runs, each below a folder of its own; kept up to date by threads until it is closed."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._closed = threading.Event()
        self.trouble: dict[str, str] = {}
        """By run: why its files cannot be followed."""

    def fetch(self, view: RunView) -> int:
        """Download a run's stored event files; returns how many."""
        found = [file for file in self._client.files(view.id) if MARK in file.path.rpartition("/")[2]]
        for file in found:
            target = self.target(view.id, file.path)
            if not target.exists() or target.stat().st_size != file.size:
                self._client.download(view.id, file.path, target)
        return len(found)

    def follow(self, view: RunView) -> None:
        """Follow an active run in threads, one per node."""
        for node_rank in range(view.num_nodes):
            work = threading.Thread(target=self._follow, args=(view, node_rank), name=f"events-{view.id}", daemon=True)
            work.start()

    def close(self) -> None:
        self._closed.set()

    def target(self, run: str, path: str) -> Path:
        """The local path of a run's file; MusterError for a name that would leave the folder."""
        root = self._folder / run
        if not is_safe_path(path) or not is_below(root / path, root):
            raise MusterError(f"the run's file {path!r} would be written outside {root}")
        return root / path

    def _follow(self, view: RunView, node_rank: int) -> None:
        """In a thread: follow until the run has ended, reconnecting as needed."""
        command = ("python3", "-u", "-c", _FOLLOWER.read_text())
        while not self._closed.is_set():
            try:
                tunnel = self._client.open_tunnel(view.id, TunnelTarget("shell", command=command), node_rank)
                self.trouble.pop(view.id, None)
                writer = _Writer(self, view.id, "" if node_rank == 0 else f"node_{node_rank}/")
                Session(tunnel, {}, {frames.DATA: writer}).run(self._closed.is_set)
            except (MusterError, OSError) as error:
                self.trouble[view.id] = str(error)
            try:
                now = self._client.run(view.id)
                if now.status in states.TERMINAL:
                    self.fetch(now)
                    return
            except (MusterError, OSError) as error:
                self.trouble[view.id] = str(error)
            self._closed.wait(_AGAIN_S)


class _Writer(End):
    """Writes the pieces that a follower sends to their files."""

    def __init__(self, mirror: Mirror, run: str, prefix: str) -> None:
        self._mirror = mirror
        self._run = run
        self._prefix = prefix
        self._head = bytearray()
        self._path: Path | None = None
        self._offset = self._left = 0

    def fileno(self) -> int:
        return -1

    def write(self, data: memoryview) -> int | None:
        if self._left:
            piece = data[: self._left]
            self._put(piece)
            self._left -= len(piece)
            return len(piece)
        taken, _, rest = bytes(data).partition(b"\n")
        self._head += taken
        if len(self._head) > _HEAD_BYTES:
            raise MusterError("what the node sends is not an event file")
        count = len(taken)
        if count < len(data) or rest:
            count += 1
            self._begin()
        return count

    def close(self) -> None:
        self._left = 0

    def _begin(self) -> None:
        try:
            head = from_json(PieceHead, json.loads(self._head))
        except (ValueError, WireError) as error:
            raise MusterError(f"what the node sends is not an event file: {error}") from error
        self._head.clear()
        self._path = self._mirror.target(self._run, self._prefix + head.path)
        self._offset, self._left = head.offset, head.size

    def _put(self, piece: memoryview) -> None:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("r+b" if self._path.exists() else "w+b") as file:
            file.seek(self._offset)
            file.write(piece)
        self._offset += len(piece)
