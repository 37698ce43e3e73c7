"""What lines mean: the table of rules. The first rule that fits decides, so the narrow ones stand above the wide ones.

A rule looks at single lines (an exception's, or the last that a program printed), each cut to a bounded length, and
none of its patterns repeats a repetition: no line costs more than its length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from muster.diagnosis import machine_rules, program_rules
from muster.diagnosis.rule import Rule, Where

RULES: tuple[Rule, ...] = (
    *machine_rules.DEVICES,
    *machine_rules.MEMORY_AND_DISK,
    *program_rules.LOADERS,
    *machine_rules.MEETING,
    *program_rules.ENVIRONMENT,
    *program_rules.DATA,
    *machine_rules.PEERS,
    *program_rules.SCRIPT,
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
    for rule in RULES:
        if rule.where not in ("both", where):
            continue
        for line in seen:
            if match := rule.pattern.search(line):
                return Finding(rule, line, {name: text or "" for name, text in match.groupdict().items()})
    return None
