"""Whether a program rejected its arguments: by its exit code, and by the usage text that programs then print."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.diagnosis.words import sounds_like_failure
from muster.wire.verdicts import RankEvidence

_USUAL = 2
"""The exit code of argparse, click, getopt, clap, Go's `flag`, and of Python where it finds no script."""
_CODES = (_USUAL, 64)
"""The second is EX_USAGE of sysexits.h."""
_REJECTED = re.compile(
    r"(?<!\S)\S+: error: |Error: (?:No such option|Missing|Invalid value|Got unexpected)|: can't open file '"
    r"|^error: (?:unexpected argument|invalid value|the following required|unrecognized subcommand|a value is required)"
    r"|^flag provided but not defined: |^invalid value .{1,200} for flag |^unknown (?:shorthand )?flag: "
    r"|[│|] (?:No such option|Missing (?:option|argument|parameter)|Invalid value|Got unexpected)"
    r"|^ERROR: (?:Could not consume arg: |The function received no value for the required arg)"
)
_BY_ARGPARSE = re.compile(
    r": error: (?:argument \S{1,200}: |unrecognized arguments: |the following arguments are required: "
    r"|ambiguous option: )"
)
"""A program's own words, which need no usage text next to them: a launcher's fills pages."""
_BOX = re.compile(r"╭─+ (?:Required options|Parsing error|Unrecognized options|Invalid|Missing|Error)")
"""The first line of errors from tyro and others that print with rich."""
_REJECTED_OPTION = re.compile(
    r"(?i)\b(?:un(?:recogni[sz]ed|known)|illegal|invalid|ambiguous|no such) (?:command[- ]line )?"
    r"(?:option|argument|flag)\b"
    r"|\boption .{1,80} (?:requires an argument|is ambiguous)|\b(?:missing|too (?:few|many)) (?:arguments|operand)\b"
    r"|\bflags? parsing error\b"
)
_USAGE = re.compile(r"(?i)(?:usage(?: of [^:]{1,80})?:\s*(?!\d)|(?:try|pass|see|run)\b.{0,80}--help)")
_FRAME = dict.fromkeys(map(ord, "│╭╮╰╯─|"), " ")
_LAST_LINES = 3
_TEXT_LINES = 14


def rejected(tail: Sequence[str], rank: RankEvidence) -> str:
    """The line that says so; empty where a program ended for another reason. `tail`: its last lines, stripped."""
    at = next((i for i, line in enumerate(tail) if _USAGE.match(line) and i >= len(tail) - _TEXT_LINES), None)
    if rank.exit_code not in _CODES and not (rank.exit_code == 1 and at is not None and _is_own(tail, at, rank)):
        return ""
    usage = at is not None or any(line.lower().startswith("usage:") for line in tail)
    told = next((line for line in reversed(tail) if _REJECTED.search(line)), "")
    if told and _BY_ARGPARSE.search(told) and rank.exit_code == _USUAL:
        return told
    if (boxed := next((i for i, line in enumerate(tail) if _BOX.match(line)), None)) is not None and not told:
        return " ".join(" ".join(tail[boxed : boxed + _TEXT_LINES]).translate(_FRAME).split())
    if told and (usage or ": error: " not in told) and (rank.exit_code == _USUAL or usage):
        return told.strip("│| ")
    if at is None:
        return ""
    below = next((i for i in range(at + 1, len(tail)) if tail[i].lower().startswith("error:")), None)
    if below is not None:
        return _whole(tail[below:])
    before = tail[max(0, at - _LAST_LINES) : at]
    said = next((line for line in (*reversed(before), *tail[at:]) if _REJECTED_OPTION.search(line)), "")
    return said or next(filter(sounds_like_failure, reversed(before)), "") or _whole(tail[at:])


def _is_own(tail: Sequence[str], at: int, rank: RankEvidence) -> bool:
    """Whether a usage text belongs to a program of the job's own command, or stands below a rejected option."""
    if any(map(_REJECTED_OPTION.search, tail[max(0, at - _LAST_LINES) : at])):
        return True
    named = re.search(r"(?:\S*/)?([\w.-]+)", tail[at].partition(":")[2] or " ".join(tail[at + 1 : at + 2]))
    return named is not None and len(named[1]) > 1 and named[1] in rank.command


def _whole(text: Sequence[str]) -> str:
    """The first line of a text, with the one below it where it is only a title."""
    return f"{text[0]} {text[1]}" if text[0].endswith(":") and len(text) > 1 else text[0]
