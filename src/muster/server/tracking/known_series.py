"""Summaries of the series that runs are logging to, kept in memory between deliveries.

A run's are taken out by whoever writes to it, and put back when that has been committed. So what was rolled back is
never found here: either nothing was put back, or what was does not agree with the run's count of points.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from muster.server.tracking.summaries import Summary

_MOST_SERIES = 20_000

Summaries = dict[tuple[str, str], Summary]
"""By name and type."""


@dataclass
class KnownSource:
    """What is known of one source in one attempt."""

    summaries: Summaries = field(default_factory=dict)
    tail: tuple[int, int] | None = None
    """How many rows it has in tails, and how many points in them; None: not known."""


@dataclass
class KnownRun:
    """What is known of one run, as of its last point."""

    last_order: int = 0
    sources: dict[tuple[int, str], KnownSource] = field(default_factory=dict)
    """By attempt and the source's name."""

    @property
    def num_series(self) -> int:
        return sum(len(source.summaries) for source in self.sources.values())


class KnownSeries:
    """The runs that were written to last; used by the one thread that writes."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, KnownRun] = OrderedDict()
        self._num_series = 0

    def take(self, run_id: str, last_order: int) -> KnownRun:
        """What is known of a run that has so many points; empty where that is out of date."""
        found = self._runs.pop(run_id, None)
        if found is None:
            return KnownRun()
        self._num_series -= found.num_series
        return found if found.last_order == last_order else KnownRun()

    def put(self, run_id: str, known: KnownRun) -> None:
        """Keep what was committed."""
        self.take(run_id, -1)
        self._runs[run_id] = known
        self._num_series += known.num_series
        while self._num_series > _MOST_SERIES:
            _, oldest = self._runs.popitem(last=False)
            self._num_series -= oldest.num_series
