"""What a piece of advice looks at, and the names that it finds there: paths, ports, options, the user's own lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.diagnosis.causes import Cause
from muster.diagnosis.raised import Frame, Raised
from muster.wire.verdicts import JobFacts

_PORT = re.compile(r"port:? ?(\d{2,5})\b|[:\]](\d{4,5})\b|\((?:'[^']*'|\"[^\"]*\"), (\d{2,5})\)")
_QUOTED_PATH = re.compile(r"['\"‘„«`]([^'\"’“»`]{1,300})['\"’“»`]")
_PATH = re.compile(r"(?<![\w:/])(/[\w.@%+=-]+(?:/[\w.@%+=-]+)*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]+)")
_RELATIVE = re.compile(r"(?<![\w./-])([\w.-]+/[\w./-]+): No such file")
_OPENED = re.compile(r"(?:open|read|load|find|stat|access) (?:file )?([\w./-]+\.\w+)")
_FILE_NAME = re.compile(r"(?<![\w./-])([A-Za-z0-9_-]{1,80}\.[a-z][a-z0-9]{1,5})(?![A-Za-z0-9(/.])")
_CONNECTED = re.compile(r"connect(?:ion)? to (?!the\b|an?\b|any\b)([\w.-]+)(?: port (\d+)|:(\d+))?")
_URL = re.compile(r"\b((?:https?|s3|gs|hdfs)://[^\s'\"<>)]+)|host='([^']+)', port=(\d+)")
_MEANT = re.compile(r"[Dd]id you mean:? ?[`'\"]?([\w.+-]+)[`'\"]? ?\?")


@dataclass(frozen=True)
class Case:
    """What a piece of advice looks at."""

    cause: Cause
    facts: JobFacts

    @property
    def line(self) -> str:
        return self.cause.headline

    @property
    def text(self) -> str:
        return "\n".join(
            (self.cause.headline, *(self.cause.raised.all_lines if self.cause.raised else self.cause.lines))
        )

    @property
    def raised(self) -> Raised | None:
        return self.cause.raised

    def group(self, name: str) -> str:
        return self.cause.finding.groups.get(name, "") if self.cause.finding else ""


def port_in(text: str) -> int | None:
    found = _PORT.search(text)
    return int(next(group for group in found.groups() if group)) if found else None


def own_frame(raised: Raised | None) -> Frame | None:
    if raised is None:
        return None
    for one in (*raised.causes[:1], raised, *raised.causes[1:]):
        for frame in reversed(one.frames):
            if not frame.of_library:
                return frame
    return None


def sources_of(case: Case) -> str:
    frames = [frame for one in ((case.raised, *case.raised.causes) if case.raised else ()) for frame in one.frames]
    return "\n".join(frame.source for frame in frames)


def quoted_path(text: str) -> str:
    for found in _QUOTED_PATH.finditer(text):
        if "/" in found[1] or "." in found[1]:
            return found[1]
    bare = _PATH.search(text)
    return bare[1] if bare else ""


def path_in(line: str) -> str:
    """An absolute path that a line names."""
    found = _PATH.search(line)
    return found[1] if found else ""


def missing_path(line: str) -> str:
    if not re.search(
        r"(?i)no such file|cannot (?:stat|open|access|find)|not (?:found|exist)|nicht|no existe"
        r"|Aucun|no se puede|not in gzip|impossible|no rule to make target|找不到|見つかりません|не найден",
        line,
    ):
        found = _PATH.search(line)
        return found[1] if found and re.search(r"(?i)\bno \w+ (?:under|in|at)\b|missing", line) else ""
    if _QUOTED_PATH.search(line):
        return quoted_path(line)
    bare = _RELATIVE.search(line) or _PATH.search(line) or _OPENED.search(line) or _FILE_NAME.search(line)
    return bare[1] if bare else ""


def address_in(text: str) -> str:
    if found := _URL.search(text):
        return found[1] or f"{found[2]}:{found[3]}"
    if found := _CONNECTED.search(text):
        return ":".join(part for part in found.groups() if part)
    if (
        "URLError" in text
        or "ConnectionRefusedError" in text
        or "gaierror" in text
        or "Name or service not known" in text
    ):
        return "that server"
    return ""


def meant_by(text: str) -> str:
    """What the program itself proposes."""
    found = _MEANT.search(text)
    return f"It asks whether you meant `{found[1]}`." if found else ""


def has_crlf(text: str) -> bool:
    """The marks of a carriage return where a name should end."""
    return any(mark in text for mark in ("\\r'", "\\r’", "\\r:", '\\r"', "^M", "\r"))
