"""What a keeper wrote down, read back as the events that the server is told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Entry = Mapping[str, Any]


@dataclass
class Story:
    """What is known of an attempt's ranks on this node, entry by entry."""

    started: dict[int, Entry] = field(default_factory=dict)
    exited: dict[int, Entry] = field(default_factory=dict)
    announced: bool = False
    """The start was told."""
    ended: Entry | None = None

    def add(self, entry: Entry) -> list[tuple[str, float, dict[str, Any]]]:
        """Take an entry in; returns the events that follow from it (kind, at, data). Twice the same tells nothing."""
        kind, at = entry["kind"], entry["at"]
        if kind == "started" and entry["rank"] not in self.started:
            self.started[entry["rank"]] = entry
            # Ranks that mpirun starts come later than the rest.
            return [("started", at, {"ranks": [_told(entry)]})] if self.announced else []
        if kind == "running":
            return self._announce(at)
        if kind == "refused" and entry["rank"] not in self.exited:
            data = {"rank": entry["rank"], "exit_code": entry["exit_code"], "signal": None, "expected": False}
            return [*self._announce(at), *self._exit(at, {**data, "refusal": entry["message"]})]
        if kind == "exited" and entry["rank"] not in self.exited:
            data = {key: value for key, value in entry.items() if key not in ("kind", "at")}
            return [*self._announce(at), *self._exit(at, data)]
        if kind == "ended":
            self.ended = entry
        return []

    @property
    def has_failed(self) -> bool:
        """Whether a rank ended badly, and not by Muster's own signal."""
        return any(item["exit_code"] != 0 and not item.get("expected") for item in self.exited.values())

    def lose(self, at: float, lost_with: str) -> list[tuple[str, float, dict[str, Any]]]:
        """Ranks whose end nobody saw: they went with their "keeper" or "agent"."""
        events = self._announce(at) if self.started else []
        for rank in self.started.keys() - self.exited.keys():
            data = {"rank": rank, "exit_code": None, "signal": None, "expected": False, "lost_with": lost_with}
            events += self._exit(at, data)
        return events

    def _announce(self, at: float) -> list[tuple[str, float, dict[str, Any]]]:
        if self.announced:
            return []
        self.announced = True
        return [("started", at, {"ranks": [_told(entry) for entry in self.started.values()]})]

    def _exit(self, at: float, data: dict[str, Any]) -> list[tuple[str, float, dict[str, Any]]]:
        self.exited[data["rank"]] = data
        return [("exited", at, {**data, "at": at})]


def _told(entry: Entry) -> dict[str, Any]:
    return {"rank": entry["rank"], "pid": entry["pid"], "at": entry["at"]}


def read(path: Path) -> Sequence[Entry]:
    """The journal's whole lines; one that was cut by a full disk or a death is left out."""
    try:
        raw = path.read_bytes()
    except OSError:
        return []
    entries = []
    for line in raw.split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "kind" in entry and "at" in entry:
            entries.append(entry)
    return entries
