"""The facts behind a piece of advice, and the names found in them: paths, ports, options, the user's own lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.diagnosis.causes import Cause
from muster.diagnosis.raised import Frame, Raised
from muster.wire.verdicts import JobFacts

_PORT = re.compile(r"port[:=]? ?(\d{2,5})\b|[:\]](\d{4,5})\b|\((?:'[^']*'|\"[^\"]*\"), (\d{2,5})\)")
_QUOTED_PATH = re.compile(r"['\"‘„«`]([^'\"’“»`]{1,300})['\"’“»`]")
_PATH = re.compile(r"(?<![\w:/])(/[\w.@%+=-]+(?:/[\w.@%+=-]+)*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]+)")
_RELATIVE = re.compile(r"(?<![\w./-])([\w.-]+/[\w./-]+): No such file")
_OPENED = re.compile(r"(?:open|read|load|find|stat|access) (?:file )?([\w./-]+\.\w+)")
_FILE_NAME = re.compile(r"(?<![\w./-])([A-Za-z0-9_-]{1,80}\.[a-z][a-z0-9]{1,5})(?![A-Za-z0-9(/.])")
_CONNECTED = re.compile(r"connect(?:ion)? to (?:server at \")?(?!the\b|an?\b|any\b)([\w.-]+)(?: port (\d+)|:(\d+))?")
_URL = re.compile(r"\b((?:https?|s3|gs|hdfs)://[^\s'\"<>)]+)|host='([^']+)', port=(\d+)")
_MEANT = re.compile(
    r"[Dd]id you mean:? ?[`'\"]?([\w.+-]+)[`'\"]? ?\?|a similar (?:argument|subcommand|option) exists: '([\w.+-]+)'"
)
_NOT_REACHED = re.compile(
    r"(?i)connect|\breach|resolv|time(?:d )?-? ?out|refused|unreachable|\bHTTP|URL|\b[45]\d\d\b|\bSSL|certificate"
    r"|retries|name or service|gaierror|fetch|could not read|unable to (?:access|read)|failed to download|not found"
)
_VARIABLE = re.compile(
    r"(?<![\w$])\$?([A-Z][A-Z0-9]*_[A-Z0-9_]{2,})\b['\"`]?(?: environment variable| variable)?"
    r" (?:is |was |must be |needs to be |should be |has to be )?(?:not |un)?"
    r"(?:set|defined|specified|given|provided|empty|missing)\b"
    r"|environment variable:? [`'\"]?([A-Z][A-Z0-9_]{2,})\b"
    r"|[Pp]lease (?:set|export|define) [`'\"$]?([A-Z][A-Z0-9_]{3,})\b"
)


@dataclass(frozen=True)
class Case:
    """The facts behind a piece of advice."""

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


def port_of(cause: Cause) -> int | None:
    """The port that a failure is about, from its text or from the user's own line that requested it."""
    text = "\n".join((cause.headline, *(cause.raised.all_lines if cause.raised else cause.lines)))
    return port_in(text) or fixed_port(cause)


def fixed_port(cause: Cause) -> int | None:
    """The port in the user's own line."""
    frame = own_frame(cause.raised)
    return port_in(frame.source) if frame and frame.source else None


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
        r"|unable to access|cannot be opened|could not open|can't open|failed to open|could not find|does not exist"
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
    if (found := _URL.search(text)) and _NOT_REACHED.search(_URL.sub("", text)):
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
    """The program's own suggestion."""
    found = _MEANT.search(text)
    return f"It asks whether you meant `{found[1] or found[2]}`." if found else ""


def variable_in(text: str) -> str:
    """An environment variable that a line says is not set."""
    found = _VARIABLE.search(text)
    return next((name for name in found.groups() if name), "") if found else ""


def has_crlf(text: str) -> bool:
    """Signs of a carriage return at the end of a name."""
    return any(mark in text for mark in ("\\r'", "\\r’", "\\r:", '\\r"', "^M", "\r"))
