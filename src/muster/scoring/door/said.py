"""The reports of the processes that answer at an endpoint's address, and their sum. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple


@dataclass(frozen=True)
class Figures:
    """The outcomes of the requests to one deployment, as the server receives them."""

    deployment: str
    requests: int = 0
    failed: int = 0
    codes: Mapping[str, int] = field(default_factory=dict)
    rate: float = 0.0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    queue_p95_ms: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    restarts: int = 0


@dataclass(frozen=True)
class Said:
    """One report."""

    seen: int = 0
    """The version of the table that it follows."""
    open: Mapping[str, int] = field(default_factory=dict)
    """Requests inside replicas, by address."""
    figures: Tuple[Figures, ...] = ()

    @property
    def waiting(self) -> int:
        """Requests that wait for a replica."""
        return sum(item.waiting for item in self.figures)

    def line(self) -> bytes:
        """The report as it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"


class Silence:
    """How long a process has been silent, by the listener's own time.

    The listener adds the time between two looks: time in which it slept itself does not count against others.
    `head_start_s`: how much longer the first report may take.
    """

    def __init__(self, head_start_s: float = math.inf) -> None:
        self._seconds = -head_start_s

    def end(self) -> None:
        """A report came."""
        self._seconds = 0.0

    def passed(self, seconds: float, most_s: float) -> bool:
        """Add the time that passed; returns whether the silence is too long, once until the next report."""
        self._seconds += seconds
        if self._seconds < most_s:
            return False
        self._seconds = -math.inf
        return True


def parse(line: bytes) -> Optional[Said]:
    """A report; None for a line that was cut off, because nobody read for a while."""
    try:
        given = json.loads(line)
        return Said(given["seen"], given["open"], tuple(Figures(**item) for item in given["figures"]))
    except (ValueError, TypeError, KeyError):
        return None


def together(reports: Sequence[Said], before: Sequence[Figures] = ()) -> Said:
    """Several reports as one; `before`: the counts of reporters that are gone."""
    open_on: Dict[str, int] = {}
    for report in reports:
        for address, count in report.open.items():
            open_on[address] = open_on.get(address, 0) + count
    figures = [*before, *(item for report in reports for item in report.figures)]
    return Said(min((report.seen for report in reports), default=0), open_on, tuple(merged(figures)))


def merged(figures: Sequence[Figures]) -> List[Figures]:
    """One entry per deployment: counts are added, times are from the reporter with the most requests a second."""
    found: Dict[str, Figures] = {}
    for item in figures:
        known = found.get(item.deployment)
        found[item.deployment] = item if known is None else _sum(known, item)
    return list(found.values())


def past(figures: Sequence[Figures]) -> List[Figures]:
    """What remains of figures when their reporter is gone: the counts."""
    return [Figures(item.deployment, item.requests, item.failed, item.codes) for item in figures]


def _sum(one: Figures, other: Figures) -> Figures:
    codes = dict(one.codes)
    for code, count in other.codes.items():
        codes[code] = codes.get(code, 0) + count
    return replace(
        one if one.rate >= other.rate else other,
        requests=one.requests + other.requests,
        failed=one.failed + other.failed,
        codes=codes,
        rate=one.rate + other.rate,
        in_flight=one.in_flight + other.in_flight,
        waiting=one.waiting + other.waiting,
    )
