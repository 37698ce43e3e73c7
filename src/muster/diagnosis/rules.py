"""What lines mean: the table of rules. The first rule that fits decides, so the narrow ones stand above the wide ones.

A rule looks at single lines (an exception's, or the last that a program printed), each cut to a bounded length, and
none of its patterns repeats a repetition: no line costs more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from muster.diagnosis.table import machines, programs
from muster.diagnosis.table.rule import Rule, Where

_OWN_FAULT = re.compile(
    r"(?:Key|Index|Type|Attribute|Name|UnboundLocal|ZeroDivision|Value|Import|ModuleNotFound|FileNotFound|UnicodeDecode"
    r"|Recursion|NotImplemented|Overflow|FloatingPoint|Syntax)Error\b"
)
"""Exceptions that show a fault in the program, whatever their words resemble."""

RULES: tuple[Rule, ...] = (
    *machines.DEVICES,
    *machines.MEMORY_AND_DISK,
    *programs.LOADERS,
    *programs.LIMITS,
    *machines.MEETING,
    *programs.ENVIRONMENT,
    *programs.DATA,
    *machines.PEERS,
    *programs.SCRIPT,
)
"""Every rule, in the order in which they are tried."""


@dataclass(frozen=True)
class Finding:
    """A rule that fits a line."""

    rule: Rule
    line: str
    groups: dict[str, str]

    @property
    def next(self) -> str:
        return self.rule.next.format_map(self.groups)


def find(lines: Iterable[str], where: Where) -> Finding | None:
    """The first rule of the table that fits one of the lines."""
    seen = list(lines)
    first = min((index for line in seen if (index := _first(line, where)) is not None), default=None)
    if first is None:
        return None
    rule = RULES[first]
    line = next(line for line in seen if _first(line, where) == first)
    match = rule.pattern.search(line)
    assert match is not None
    return Finding(rule, line, {name: text or "" for name, text in match.groupdict().items()})


def named(name: str, line: str) -> Finding:
    """The rule of a name, for a line that it fits by other signs than its words."""
    return Finding(next(rule for rule in RULES if rule.name == name), line, {})


@lru_cache(maxsize=4096)
def _first(line: str, where: Where) -> int | None:
    """The position in the table of the first rule that fits a line. Ranks of a gang print the same again and again."""
    for index, rule in enumerate(RULES):
        if rule.where in ("both", where) and rule.pattern.search(line):
            if rule.by_words and where == "raised" and _OWN_FAULT.match(line):
                continue
            return index
    return None
