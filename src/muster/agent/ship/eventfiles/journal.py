"""The journal of an attempt's event files: metrics for the server, and how far each file was read.

Both are in one file, so that neither exists without the other: an agent that takes over from a killed one finds
the last position there, and writes nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.agent.ship.eventfiles.points import Param, Point

Tags = Mapping[str, str]
"""The names that the tags of a file got in this stretch."""


@dataclass
class Progress:
    """How far one file was read."""

    offset: int = 0
    unfinished: int = 0
    """How many lines behind the offset are written already."""
    names: dict[str, str] = field(default_factory=dict)


def stretch(
    file: str, begin: int, end: int, names: Tags, items: Sequence[tuple[str, Point | Param]], written: int
) -> bytes:
    """The lines for a stretch of a file, without the first `written` ones."""
    lines = [json.dumps({"kind": "reading", "file": file, "from": begin, "names": names})]
    lines += [_line(name, item) for name, item in items[written:]]
    lines.append(json.dumps({"kind": "read", "file": file, "to": end}))
    return ("\n".join(lines) + "\n").encode()


def _line(name: str, item: Point | Param) -> str:
    if isinstance(item, Param):
        return json.dumps({"kind": "param", "name": name, "value": item.value})
    return json.dumps(
        {"kind": "metric", "type": "scalar", "name": name, "value": item.shown, "step": item.step, "at": item.at}
    )


def recall(lines: Iterable[bytes]) -> dict[str, Progress]:
    """How far each file was read, from the journal's lines; unknown lines are skipped."""
    known: dict[str, Progress] = {}
    current: Progress | None = None
    for line in lines:
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(item, dict):
            continue
        kind, file = item.get("kind"), item.get("file")
        if kind == "reading" and isinstance(file, str) and isinstance(begin := item.get("from"), int):
            current = known.setdefault(file, Progress())
            if begin != current.offset:
                current.offset, current.unfinished = max(0, begin), 0
            if isinstance(names := item.get("names"), dict):
                current.names.update({tag: name for tag, name in names.items() if isinstance(name, str)})
        elif kind == "read" and isinstance(file, str) and isinstance(end := item.get("to"), int):
            progress = known.setdefault(file, Progress())
            progress.offset, progress.unfinished = max(progress.offset, end), 0
            current = None
        elif kind in ("metric", "param") and current is not None:
            current.unfinished += 1
    return known
