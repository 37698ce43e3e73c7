"""Failures of the same kind: compares two verdicts without ranks, nodes and numbers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.wire.verdicts import Similar, Verdict

_ADDRESSES = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{12,}\b|/(?:[^\s/'\"]+/)*|\d+")
_WHERE = re.compile(r"\b(?:rank \d+|mpirun) on \S+?:? ")
_SAYS_LITTLE = re.compile(
    r"the time limit\b|(?:exited with code #|was ended by \S+(?: \([^)]*\))?)$|(?:left while|had ended|did not)\b"
)
"""The beginning of messages that only name the kind of end: the rest of the message tells failures apart."""
_SHOWN = 3
WINDOW_S = 7 * 86_400.0


@dataclass(frozen=True)
class Earlier:
    """A run that failed before."""

    run: str
    at: float
    verdict: Verdict
    code: str = ""
    """Its code, in a form for people: `commit 1a2b3c4d`, or `code 5e6f7a8b` where only a digest is known."""


def likeness(verdict: Verdict) -> str:
    """Equal for failures of the same kind: the code and the message without numbers, paths and places.

    Empty where the message says too little to compare.
    """
    parts = _ADDRESSES.sub("#", _WHERE.sub("", verdict.message.split("\n", 1)[0])).split("; ")
    little = bool(_SAYS_LITTLE.match(parts[0]))
    if little and len(parts) < 2:
        return ""
    told = "; ".join(parts[:2] if little else parts[:1])
    return hashlib.sha256(f"{verdict.code}\n{told}".encode()).hexdigest()[:16]


def similar_to(
    verdict: Verdict, earlier: Sequence[Earlier], now: float, code_of: Callable[[str], str] | None = None
) -> Similar | None:
    """Those of the last week that failed in the same way; None where there is none.

    `code_of`: a better name for the code of a run, such as its commit; empty where there is none.
    """
    mine = likeness(verdict)
    alike = [run for run in earlier if now - run.at <= WINDOW_S and likeness(run.verdict) == mine]
    if not alike or not mine:
        return None
    alike.sort(key=lambda run: run.at, reverse=True)
    first = alike[-1]
    times = f"{len(alike)} time{'s' if len(alike) > 1 else ''}"
    shown = ", ".join(run.run for run in alike[:_SHOWN]) + (", …" if len(alike) > _SHOWN else "")
    code = (code_of(first.run) if code_of else "") or first.code
    since = f", first with {code}" if code else ""
    text = f"failed in the same way {times} this week (run{'s' if len(alike) > 1 else ''} {shown}){since}"
    return Similar(len(alike), tuple(run.run for run in alike[:_SHOWN]), first.run, text)
