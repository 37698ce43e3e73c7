"""One attempt's event files: what is new in them becomes event lines, each number once."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.agent.ship.eventfiles import journal, tensorboard, wandb
from muster.agent.ship.eventfiles.names import Names
from muster.agent.ship.eventfiles.points import Param, Point, Taken
from muster.agent.ship.eventfiles.sources import Source, find
from muster.host.files import write_all
from muster.host.sandbox.fence import open_inside

log = logging.getLogger(__name__)

_READERS: Mapping[str, Callable[[bytes, int], Taken]] = {tensorboard.TOOL: tensorboard.take, wandb.TOOL: wandb.take}
SHOWN = {tensorboard.TOOL: "TensorBoard", wandb.TOOL: "Weights & Biases"}
_WINDOW = 2 << 20
_PASS_BYTES = 8 << 20
_SEARCH_S, _SEARCH_SHARE = 2.0, 20
"""Files are searched for at this interval, or after this many times the duration of a search."""


@dataclass
class Reader:
    """One file, and how far it was read."""

    source: Source
    progress: journal.Progress
    seen: int = 0
    """Its size in the previous pass: newer points may be on their way through the in-run API as well."""
    inode: int = 0
    lost: int = 0
    broken: bool = False

    @property
    def left(self) -> int:
        return 0 if self.broken else max(0, self.seen - self.progress.offset)


@dataclass
class Reading:
    """The state of reading an attempt's files."""

    roots: tuple[Path, ...]
    events: Path
    """The folder of the lines that are shipped."""
    rank: int
    """The node's first rank, in whose name they are logged: files do not name a rank."""
    since: float
    readers: dict[str, Reader] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    logged: set[str] = field(default_factory=set)
    """Metrics that the script logs through the in-run API or MLflow."""
    given: set[str] = field(default_factory=set)
    """Parameters that it logs there."""
    _logged_to: dict[str, int] = field(default_factory=dict)
    _search_at: float = 0.0
    _recalled: dict[str, journal.Progress] | None = None

    def read(self, final: bool = False) -> int:
        """Read what is new; returns how many bytes. `final`: also the newest points."""
        self._search(final)
        if not self.readers:
            return 0
        # Sizes first, then the names that the script logs itself: those it writes at once.
        sizes = {name: self._size(reader) for name, reader in self.readers.items()}
        self._look_at_own_metrics()
        left = _PASS_BYTES
        for name, reader in self.readers.items():
            until = sizes[name] if final else min(reader.seen, sizes[name])
            reader.seen = sizes[name]
            while left > 0 and not reader.broken and (size := self._step(reader, until)):
                left -= size
        return _PASS_BYTES - left

    @property
    def unread(self) -> int:
        """How many bytes were not read."""
        return sum(reader.left for reader in self.readers.values())

    def notes(self) -> list[str]:
        """Notes about anything that is missing."""
        found = []
        for reader in self.readers.values():
            where = f"{reader.source.name} ({SHOWN[reader.source.tool]})"
            if reader.broken:
                found.append(f"{where} is damaged at byte {reader.progress.offset:,}: no metrics are read behind it")
            elif reader.lost:
                found.append(f"{reader.lost:,} records of {where} cannot be read and are left out of the metrics")
        if self.names.too_many:
            found.append(f"{self.names.too_many:,} values of event files are left out: they have too many tags")
        if self.unread:
            found.append(f"{self.unread:,} bytes of event files were not read as metrics: the job ended before")
        return found

    def _search(self, final: bool) -> None:
        now = time.monotonic()
        if now < self._search_at and not final:
            return
        if self._recalled is None:
            self._recalled = self._recall()
        for root in self.roots:
            for source in find(root, self.since):
                if source.name not in self.readers:
                    progress = self._recalled.get(source.name, journal.Progress())
                    self.readers[source.name] = Reader(source, progress)
                    for tag, name in progress.names.items():
                        self.names.give(source.tool, source.folder, tag, name)
        took_s = time.monotonic() - now
        self._search_at = now + max(_SEARCH_S, _SEARCH_SHARE * took_s)

    def _recall(self) -> dict[str, journal.Progress]:
        known: dict[str, journal.Progress] = {}
        for tool in _READERS:
            try:
                with os.fdopen(open_inside(self.events, Path(self._output(tool))), "rb") as file:
                    known.update(journal.recall(file))
            except OSError:
                continue
        return known

    def _output(self, tool: str) -> str:
        return f"rank_{self.rank}.{tool}.jsonl"

    def _size(self, reader: Reader) -> int:
        try:
            status = (reader.source.root / reader.source.inner).lstat()
        except OSError:
            return 0
        if reader.inode not in (0, status.st_ino) or status.st_size < reader.progress.offset:
            # Another file replaced it; its content is logged from the start.
            reader.progress, reader.broken = journal.Progress(names=reader.progress.names), False
        reader.inode = status.st_ino
        return status.st_size

    def _step(self, reader: Reader, until: int) -> int:
        """Read one stretch of a file; returns how many bytes, 0 when nothing more can be read."""
        source, progress = reader.source, reader.progress
        if progress.offset >= until:
            return 0
        try:
            descriptor = open_inside(source.root, Path(source.inner))
            try:
                data = os.pread(descriptor, min(_WINDOW, until - progress.offset), progress.offset)
            finally:
                os.close(descriptor)
            taken = _READERS[source.tool](data, progress.offset)
            reader.lost += taken.lost
            reader.broken = taken.broken
            if not taken.consumed and len(data) == _WINDOW:
                # No record is so long.
                reader.broken = True
            if taken.consumed:
                self._write(reader, progress.offset + taken.consumed, taken)
        except OSError as error:
            log.info("%s cannot be read now: %s", source.name, error)
            return 0
        return taken.consumed

    def _write(self, reader: Reader, end: int, taken: Taken) -> None:
        source, progress = reader.source, reader.progress
        items, new = self._named(source, progress, taken.items)
        if items or new:
            lines = journal.stretch(source.name, progress.offset, end, new, items, progress.unfinished)
            self._append(source.tool, lines)
        progress.offset, progress.unfinished = end, 0
        progress.names.update(new)

    def _named(
        self, source: Source, progress: journal.Progress, items: Sequence[Point | Param]
    ) -> tuple[list[tuple[str, Point | Param]], dict[str, str]]:
        found: list[tuple[str, Point | Param]] = []
        new: dict[str, str] = {}
        for item in items:
            if isinstance(item, Param):
                found += [] if item.tag in self.given else [(item.tag, item)]
            elif name := self.names.name(source.tool, source.folder, item.tag, self.logged):
                found.append((name, item))
                if progress.names.get(item.tag) != name:
                    new[item.tag] = name
        return found, new

    def _append(self, tool: str, lines: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        descriptor = open_inside(self.events, Path(self._output(tool)), flags)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                # The disk was full, or the writer was killed.
                lines = b"\n" + lines
            write_all(descriptor, lines)
        finally:
            os.close(descriptor)

    def _look_at_own_metrics(self) -> None:
        """Note which metrics the ranks of this node log by themselves."""
        for path in self.events.glob("rank_*.jsonl"):
            if path.name.count(".") > 1:
                continue
            try:
                with os.fdopen(open_inside(self.events, Path(path.name)), "rb") as file:
                    file.seek(self._logged_to.get(path.name, 0))
                    data = file.read(_PASS_BYTES)
            except OSError:
                continue
            whole = data[: data.rfind(b"\n") + 1]
            self._logged_to[path.name] = self._logged_to.get(path.name, 0) + len(whole)
            for line in whole.splitlines():
                kind, name = _logged(line)
                if kind in ("metric", "param"):
                    (self.logged if kind == "metric" else self.given).add(name)


def _logged(line: bytes) -> tuple[str, str]:
    """The kind and the name in a line of the in-run API; empty where it has neither."""
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(item, dict):
        return "", ""
    return str(item.get("kind", "")), str(item.get("name", ""))
