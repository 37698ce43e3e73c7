"""What a rule is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Where = Literal["raised", "said", "both"]


@dataclass(frozen=True)
class Rule:
    """One kind of complaint."""

    name: str
    code: str
    """The code of the verdict."""
    pattern: re.Pattern[str]
    cases: tuple[str, ...]
    """Recorded failures (tests/verdicts) that it is for, by prefixes of their names."""
    next: str = ""
    """What to do; `{name}` stands for the group of that name in the pattern."""
    where: Where = "both"
    """In an exception's lines, in the last lines of a program that raised none, or in both."""
    victim: bool = False
    """It complains of another rank."""

    @property
    def by_words(self) -> bool:
        """Whether only a script's own words say that it complains of another rank."""
        return self.victim and self.name in ("hand-made meeting", "waits for others", "told by others")


def rule(
    name: str, code: str, pattern: str, cases: str, next: str = "", where: Where = "both", victim: bool = False
) -> Rule:
    """A row of the table; the names of its cases are separated by spaces."""
    return Rule(name, code, re.compile(pattern), tuple(cases.split()), next, where, victim)
