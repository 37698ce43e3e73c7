"""How far the export of each run is: on disk, so that what the collector has not taken is sent by the next process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from muster.host.files import PRIVATE, read_json, write_json
from muster.telemetry.life import Life
from muster.wire.codec import WireError, from_file, to_json

_REMEMBERED = 1000


@dataclass
class RunPosition:
    """Of one run."""

    cursor: str = ""
    life: Life = field(default_factory=Life)
    unfinished: dict[str, str] = field(default_factory=dict)
    ended_at: float = 0.0
    """When it was over, and all of it was exported."""


@dataclass
class Position:
    """Of all runs that are looked after."""

    since: float
    """Runs that were submitted before are passed over, unless they are active."""
    runs: dict[str, RunPosition] = field(default_factory=dict)

    def forget_old(self) -> None:
        """Keep only the last ones that are over: somebody may have them go on (`muster retry`)."""
        over = sorted((item.ended_at, run) for run, item in self.runs.items() if item.ended_at)
        for _, run in over[:-_REMEMBERED]:
            del self.runs[run]


def load(path: Path, now: float) -> Position:
    """What an earlier process left; a fresh one where that cannot be understood."""
    try:
        return from_file(Position, read_json(path) or {"since": now})
    except (WireError, TypeError, ValueError):
        return Position(now)


def save(path: Path, position: Position) -> None:
    position.forget_old()
    write_json(path, to_json(position), mode=PRIVATE)
