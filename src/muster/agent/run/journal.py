"""A keeper's journal, turned into events for the server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from muster.agent.run.records import EndedEntry, Entry, entry_of
from muster.wire.codec import from_file
from muster.wire.node.agents import Exited, Started, StartedRank


class Moment(NamedTuple):
    """Something that happened to an attempt's ranks, and when."""

    at: float
    data: Started | Exited


@dataclass
class Story:
    """The state of an attempt's ranks on this node, built entry by entry."""

    started: dict[int, StartedRank] = field(default_factory=dict)
    exited: dict[int, Exited] = field(default_factory=dict)
    announced: bool = False
    """The start was reported to the server."""
    ended: EndedEntry | None = None

    def add(self, entry: Entry) -> list[Moment]:
        """Apply an entry; returns the events that follow from it. The same entry again adds nothing."""
        if entry["kind"] == "started" and entry["rank"] not in self.started:
            started = self.started[entry["rank"]] = StartedRank(entry["rank"], entry["pid"], entry["at"])
            # Ranks that mpirun starts come later than the others.
            return [Moment(entry["at"], Started((started,)))] if self.announced else []
        if entry["kind"] == "running":
            return self._announce(entry["at"])
        if entry["kind"] == "refused" and entry["rank"] not in self.exited:
            at, rank = entry["at"], entry["rank"]
            return self._exit(Exited(rank, entry["exit_code"], None, False, at, refusal=entry["message"]))
        if entry["kind"] == "exited" and entry["rank"] not in self.exited:
            return self._exit(from_file(Exited, entry))
        if entry["kind"] == "ended":
            self.ended = entry
        return []

    @property
    def has_failed(self) -> bool:
        """Whether a rank failed, and not by Muster's own signal."""
        return any(rank.exit_code != 0 and not rank.expected for rank in self.exited.values())

    def lose(self, at: float, lost_with: str) -> list[Moment]:
        """Mark ranks whose end nobody saw as lost with their "keeper" or "agent"."""
        moments = self._announce(at) if self.started else []
        for rank in self.started.keys() - self.exited.keys():
            moments += self._exit(Exited(rank, None, None, False, at, lost_with=lost_with))
        return moments

    def _announce(self, at: float) -> list[Moment]:
        if self.announced:
            return []
        self.announced = True
        return [Moment(at, Started(tuple(self.started.values())))]

    def _exit(self, exited: Exited) -> list[Moment]:
        self.exited[exited.rank] = exited
        return [*self._announce(exited.at), Moment(exited.at, exited)]


def read(path: Path) -> Sequence[Entry]:
    """The journal's complete lines; a line cut off by a full disk or a crash is left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return []
    entries: list[Entry] = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            entry = entry_of(json.loads(line))
            if entry is not None:
                entries.append(entry)
    return entries
