"""Formats figures and tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from textwrap import wrap

from muster.wire.text import size as size

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", re.IGNORECASE)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_WORDS = re.compile(r"[^\s`]*`[^`]+`\S*|\S+")
"""What is never broken: a word, or a command in backquotes."""
_TO_PASTE = re.compile(r"\s*(\$ |(muster|pip|curl|ssh) \S|https?://\S+$)")


def duration(seconds: float) -> str:
    """Such as `0.4s`, `12s`, `3m 05s`, `2h 10m`, `3d 4h`."""
    if seconds < 0:
        seconds = 0.0
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


def parse_duration(text: str) -> int | None:
    """Seconds of `90`, `90s`, `15m`, `1h30m`, `2d`; None for anything else, or zero."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds or None


def time_text(seconds: float) -> str:
    """A duration in whole units, as `parse_duration` reads it: `1d`, `12h`, `90s`."""
    for unit, length_s in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % length_s == 0:
            return f"{seconds / length_s:g}{unit}"
    return f"{seconds:g}s"


def counted(count: int, noun: str, ending: str = "s") -> str:
    """Such as `1 file`, `1,200 files`."""
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def number(value: object) -> str:
    """A metric's value in a few characters."""
    if not isinstance(value, float):
        return str(value)
    if not isfinite(value):  # as everywhere else: NaN, Infinity
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.1f}"
    return f"{value:.4g}"


def moment(at: float | None, now: float) -> str:
    """A time of day, with its date where it was not today."""
    if at is None:
        return "-"
    when, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
    return when.strftime("%H:%M:%S" if when.date() == today.date() else "%Y-%m-%d %H:%M")


def date(at: float, now: float) -> str:
    """Such as `2026-01-31 12:00:05 (3m 05s ago)`."""
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S} ({ago(at, now)})"


def wrapped(text: str, room: int | None, indent: int) -> list[str]:
    """A text wrapped behind an indentation; words are not broken."""
    if room is None or len(text) <= room - indent:
        return [text]
    return wrap(text, max(20, room - indent), break_long_words=False, break_on_hyphens=False) or [""]


def folded(text: str, room: int | None) -> str:
    """Messages wrapped to a terminal: words and commands are not broken, and a line to paste stays one line."""
    if room is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _fold(line, max(20, room)))


def _fold(line: str, room: int) -> list[str]:
    if width(line) <= room or _TO_PASTE.match(line):
        return [line]
    indent = len(line) - len(line.lstrip(" "))
    lines = [" " * indent]
    for word in _pieces(line, room - indent - 2):
        if not lines[-1].strip():
            lines[-1] += word
        elif width(lines[-1]) + 1 + width(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * (indent + 2) + word)
    return lines


def _pieces(line: str, room: int) -> list[str]:
    """Words, and commands in backquotes that fit a line."""
    found = _WORDS.findall(line)
    return [piece for word in found for piece in ([word] if width(word) <= room else word.split())]


def age(seconds: float) -> str:
    """Such as `8s`, `65s`, `12m`, `5h`, `3d`: one figure that fits a narrow column."""
    for unit, length_s, most in (("s", 1, 100), ("m", 60, 100), ("h", 3600, 48)):
        if seconds < most * length_s:
            return f"{max(0, int(seconds // length_s))}{unit}"
    return f"{int(seconds // 86_400)}d"


def ago(at: float | None, now: float) -> str:
    return "-" if at is None else f"{duration(now - at)} ago" if now - at >= 1 else "now"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, the last one of any width."""
    cells = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(width(row[column]) for row in cells) for column in range(len(header))]
    return ["  ".join(_pad(cell, widths[column]) for column, cell in enumerate(row)).rstrip() for row in cells]


def width(text: str) -> int:
    """The number of visible characters."""
    return len(_COLORS.sub("", text))


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def _pad(cell: str, to: int) -> str:
    return cell + " " * (to - width(cell))
