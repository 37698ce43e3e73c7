"""The position of each run's export: on disk, so that the next process sends what the collector has not accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from muster.host.files import PRIVATE, read_json, write_json
from muster.telemetry.life import Life
from muster.wire.codec import WireError, from_file, to_json

_REMEMBERED = 1000


@dataclass
class RunPosition:
    """The position of one run."""

    cursor: str = ""
    life: Life = field(default_factory=Life)
    unfinished: dict[str, str] = field(default_factory=dict)
    ended_at: float = 0.0
    """When it ended, and all of it was exported."""


@dataclass
class Position:
    """The positions of all runs that are exported."""

    since: float
    """Runs submitted before that are skipped, unless they are active."""
    runs: dict[str, RunPosition] = field(default_factory=dict)

    def forget_old(self) -> None:
        """Keep only the most recently ended: a user may continue them (`muster retry`)."""
        over = sorted((item.ended_at, run) for run, item in self.runs.items() if item.ended_at)
        for _, run in over[:-_REMEMBERED]:
            del self.runs[run]


def load(path: Path, now: float) -> Position:
    """The position that an earlier process saved; a fresh one where that is unreadable."""
    try:
        return from_file(Position, read_json(path) or {"since": now})
    except (WireError, TypeError, ValueError):
        return Position(now)


def save(path: Path, position: Position) -> None:
    position.forget_old()
    write_json(path, to_json(position), mode=PRIVATE)
