"""What a process printed, as lines that can be read: without colours, overwritten progress bars and endless lengths.

Every step is linear, and a line is cut before anything looks for patterns in it.
"""

from __future__ import annotations

import re

HEADER = "Traceback (most recent call last)"
_HEAD_CHARS = 1500
_END_CHARS = 300
_RAW_CHARS = 8000
_LONGEST_PREFIX = 120
_MOST_CHARS = 1 << 20
_MOST_LINES = 10_000

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_OWNED = re.compile(
    r"(?:\[default(?P<local>\d+)\]:)?\[rank(?P<rank>\d+)\]: ?|\[default(?P<tee>\d+)\]:"
    r"|\[\d+,(?P<mpi>\d+)\](?:<std(?:out|err)>)?: ?|\[(?P<horovod>\d+)\]<std(?:out|err)>:"
)
_OWNED_HEADER = re.compile(r"\[rank\d{1,6}\]: Traceback")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ?")
# Prefixes of a traceback's header in the same line that belong to it.
_BEFORE_HEADER = re.compile(r"[\s|+]*(?:Original |Exception Group )?$|\s*traceback : $|[╭+][─-]+ $|[\w.]+\s{2,}$")
_RECORD = re.compile(r"(?:^|[\s\[:])[WEIF]\d{4} ")
_ESCAPED_HEADER = HEADER + ":\\n"


def bounded(text: str) -> str:
    """A log that is short enough to be searched as a whole, without endless lines."""
    if len(text) > _MOST_CHARS:
        text = f"{text[: _MOST_CHARS // 4]}\n…\n{text[-_MOST_CHARS * 3 // 4 :]}"
    if "[rank" in text:
        # Another process had not ended its line.
        text = _OWNED_HEADER.sub(_on_its_own_line, text)
    if len(text) <= _RAW_CHARS:
        return text
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES // 10], "…", *lines[-_MOST_LINES * 9 // 10 :]]
    return "\n".join(line if len(line) <= _RAW_CHARS else _middle_out(line) for line in lines)


def _on_its_own_line(match: re.Match[str]) -> str:
    before = match.string[match.start() - 1 : match.start()]
    return match[0] if before in ("", "\n", ":") else f"\n{match[0]}"


def _middle_out(line: str) -> str:
    line = line.rstrip("\r")
    at = line.rfind(HEADER)
    if at >= 0:
        # Joined to the rest of a progress bar.
        return line[max(0, at - _RAW_CHARS // 2) :][:_RAW_CHARS]
    if "\r" in line:
        line = _last_state(line)
    return line if len(line) <= _RAW_CHARS else line[: _RAW_CHARS // 2] + line[-_RAW_CHARS // 2 :]


def plain(raw: str) -> str:
    """One line as a terminal would finally show it, cut where it is very long."""
    line = raw.rstrip("\r")
    if "\r" in line:
        line = _last_state(line)
    if len(line) > _RAW_CHARS:
        line = line[: _RAW_CHARS // 2] + line[-_RAW_CHARS // 2 :]
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    if len(line) > _HEAD_CHARS + _END_CHARS:
        line = f"{line[:_HEAD_CHARS]} … {line[-_END_CHARS:]}"
    return line.rstrip()


def lines_of(text: str) -> list[str]:
    """The lines of a log; a traceback's header that is joined to something gets its own line."""
    found: list[str] = []
    prefix: re.Pattern[str] | None = None
    raws = text.split("\n")
    for index, raw in enumerate(raws):
        if HEADER in raw:
            prefix = _prefix_of(raw, raws[index + 1] if index + 1 < len(raws) else "")
        if prefix is not None and (match := prefix.match(raw)):
            found.append(plain(raw[match.end() :]))
        elif HEADER in raw:
            found += _around_header(raw)
        else:
            found.append(plain(raw))
    while found and not found[-1]:
        found.pop()
    return found


def _prefix_of(header: str, following: str) -> re.Pattern[str] | None:
    """The prefix that a log collector added to a traceback's header and the line below it; numbers may differ."""
    said = header[:_LONGEST_PREFIX].partition(HEADER)[0]
    if not said.strip() or len(said) >= _LONGEST_PREFIX or _OWNED.fullmatch(said) or _BEFORE_HEADER.fullmatch(said):
        return None
    if _RECORD.search(said):
        # A library's own log record of an exception that it handles itself.
        return None
    pattern = re.compile(re.sub(r"\d+", r"\\d+", re.escape(said)))
    match = pattern.match(following)
    return pattern if match and following.startswith('  File "', match.end()) else None


def owner_of(line: str) -> tuple[int | None, str]:
    """The rank that a launcher put in front of a line, and the line without it."""
    if not line.startswith("["):
        return None, line
    match = _OWNED.match(line)
    if not match:
        return None, line
    number = next(value for value in match.group("rank", "tee", "mpi", "horovod") if value is not None)
    return int(number), line[match.end() :]


def without_stamps(text: str) -> str:
    """Without the time that log collectors put in front of every line."""
    lines = text.split("\n")
    sample = [line for line in lines[:200] if line.strip()]
    if len(sample) < 3 or sum(bool(_STAMP.match(line)) for line in sample) < 0.9 * len(sample):
        return text
    return "\n".join(_STAMP.sub("", line, count=1) for line in lines)


def _last_state(line: str) -> str:
    """The rest of a line that was overwritten again and again."""
    last = line.rpartition("\r")[2]
    return last if last.strip() else line.rstrip("\r ").rpartition("\r")[2]


def _around_header(raw: str) -> list[str]:
    """A line with a traceback's header: escaped line breaks are undone, a joined prefix is separated."""
    if _ESCAPED_HEADER in raw:
        return [part for piece in raw.split("\\n") for part in _split_glued(plain(piece.replace('\\"', '"')))]
    # Searched from the end, because a progress bar may have left megabytes in front.
    at = raw.rfind(HEADER)
    return _split_glued(plain(raw[max(0, at - 600) :] if at > _HEAD_CHARS else raw))


def _split_glued(line: str) -> list[str]:
    _, said = owner_of(line)
    at = said.find(HEADER)
    if at <= 0 or _BEFORE_HEADER.match(said, 0, at):
        return [line]
    return [line[: len(line) - len(said) + at].rstrip(), line[len(line) - len(said) + at :]]
