"""A cache of the summaries of series that runs are logging to, between deliveries.

A writer takes a run's summaries out, and puts them back after its commit. So nothing that was rolled back is found
here: either nothing was put back, or it does not match the run's count of points.
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
    """The cached state of one source in one attempt."""

    summaries: Summaries = field(default_factory=dict)
    tail: tuple[int, int] | None = None
    """How many rows it has in tails, and how many points in them; None: unknown."""


@dataclass
class KnownRun:
    """The cached state of one run, as of its last point."""

    last_order: int = 0
    sources: dict[tuple[int, str], KnownSource] = field(default_factory=dict)
    """By attempt and the source's name."""

    @property
    def num_series(self) -> int:
        return sum(len(source.summaries) for source in self.sources.values())


class KnownSeries:
    """The most recently written runs; used only by the writer's thread."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, KnownRun] = OrderedDict()
        self._num_series = 0

    def take(self, run_id: str, last_order: int) -> KnownRun:
        """Take out the state of a run with this count of points; empty where it is outdated."""
        found = self._runs.pop(run_id, None)
        if found is None:
            return KnownRun()
        self._num_series -= found.num_series
        return found if found.last_order == last_order else KnownRun()

    def put(self, run_id: str, known: KnownRun) -> None:
        """Put committed state back."""
        self.take(run_id, -1)
        self._runs[run_id] = known
        self._num_series += known.num_series
        while self._num_series > _MOST_SERIES:
            _, oldest = self._runs.popitem(last=False)
            self._num_series -= oldest.num_series
