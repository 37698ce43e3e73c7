"""The output of ranks as lines with a severity. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

_LONGEST = 16 << 10
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"(\d+)\.[a-z]+$")
_BEGINNING = 120
_LEVELS = (
    ("FATAL", 21, re.compile(r"\b(?:FATAL|CRITICAL)\b")),
    ("ERROR", 17, re.compile(r"\bERROR\b|^Traceback \(most recent call last\)|^\w*(?:Error|Exception)(?::|$)")),
    ("WARN", 13, re.compile(r"\bWARN(?:ING)?\b|^\S*Warning:")),
    ("DEBUG", 5, re.compile(r"\bDEBUG\b")),
)
INFO = ("INFO", 9)


@dataclass(frozen=True)
class Line:
    """One line of one rank."""

    text: str
    stream: str
    attempt: int

    @property
    def rank(self) -> int | None:
        found = _RANK.search(self.stream)
        return int(found[1]) if found and len(found[1]) < 10 else None

    @property
    def severity(self) -> tuple[str, int]:
        """OpenTelemetry's name and number of the severity, by the words that logging libraries write; default: INFO."""
        head = self.text[:_BEGINNING]
        return next(((name, number) for name, number, pattern in _LEVELS if pattern.search(head)), INFO)


@dataclass
class Unfinished:
    """The ends of logs that are not whole lines yet, by attempt and stream."""

    ends: dict[str, str] = field(default_factory=dict)
    """In base64, because it is kept on disk as JSON."""

    def feed(self, attempt: int, stream: str, data: bytes) -> list[Line]:
        """The lines that these bytes complete; one without end is cut."""
        key = f"{attempt}/{stream}"
        data = base64.b64decode(self.ends.pop(key, "")) + data
        *whole, end = data.split(b"\n")
        if len(end) > _LONGEST:
            whole, end = [*whole, end], b""
        if end:
            self.ends[key] = base64.b64encode(end).decode()
        return [line for part in whole if (line := _line(part, attempt, stream))]

    def finish(self) -> list[Line]:
        """The rest, once nothing follows."""
        found = []
        for key, end in self.ends.items():
            attempt, _, stream = key.partition("/")
            found.append(_line(base64.b64decode(end), int(attempt), stream))
        self.ends.clear()
        return [line for line in found if line]


def _line(data: bytes, attempt: int, stream: str) -> Line | None:
    # Of a progress bar that redraws itself, only what it showed last.
    shown = _ESCAPES.sub(b"", data).rstrip(b"\r").rpartition(b"\r")[2]
    text = shown[:_LONGEST].decode(errors="replace")
    return Line(text, stream, attempt) if text.strip() else None
