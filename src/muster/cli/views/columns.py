"""Tables that fit the terminal: columns are cut or left out before a line would wrap. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.cli.text import width

GAP = 2


@dataclass(frozen=True)
class Column:
    """How one column shrinks where there is too little room."""

    title: str
    least: int | None = None
    """It may be cut to so many characters; None: it is never cut."""
    leaves: int = 0
    """Columns with the highest number are left out first; 0: never."""


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None) -> list[str]:
    """A table fitted to a width; None: unlimited."""
    cells = [tuple(column.title for column in columns), *(tuple(row) for row in rows)]
    natural = [max(width(row[index]) for row in cells) for index in range(len(columns))]
    kept = _kept(columns, natural, room)
    widths = _widths(columns, natural, kept, room)
    return [_line([row[index] for index in kept], widths, room) for row in cells]


def cut(text: str, room: int) -> str:
    """A text cut to so many characters, after a word where one ends near there."""
    if len(text) <= room:
        return text
    head = text[: max(0, room - 1)]
    space = head.rfind(" ")
    return (head[:space] if space >= room // 2 else head).rstrip(" ,;:") + "…"


def _kept(columns: Sequence[Column], natural: Sequence[int], room: int | None) -> list[int]:
    kept = list(range(len(columns)))
    if room is None:
        return kept

    def needed() -> int:
        return sum(_least(columns[index], natural[index]) for index in kept) + GAP * (len(kept) - 1)

    for index in sorted(kept, key=lambda index: -columns[index].leaves):
        if needed() <= room or not columns[index].leaves:
            break
        kept.remove(index)
    return kept


def _widths(columns: Sequence[Column], natural: Sequence[int], kept: Sequence[int], room: int | None) -> list[int]:
    widths = [natural[index] for index in kept]
    if room is None:
        return widths
    # The last column, the reason, is cut first.
    for index in reversed(range(len(kept))):
        beyond = sum(widths) + GAP * (len(widths) - 1) - room
        if beyond > 0:
            widths[index] = max(_least(columns[kept[index]], widths[index]), widths[index] - beyond)
    return widths


def _least(column: Column, natural: int) -> int:
    return natural if column.least is None else min(natural, max(column.least, len(column.title)))


def _line(cells: Sequence[str], widths: Sequence[int], room: int | None) -> str:
    shown = [cell if width(cell) <= to else cut(cell, to) for cell, to in zip(cells, widths, strict=True)]
    line = "  ".join(cell + " " * (to - width(cell)) for cell, to in zip(shown, widths, strict=True)).rstrip()
    return line if room is None or width(line) <= room or "\x1b" in line else cut(line, room)
