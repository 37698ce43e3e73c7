"""When something that waits will start: an interval, learned from how long similar things have waited."""

from __future__ import annotations

from dataclasses import dataclass

from muster.control.estimates.book import Book, Traits
from muster.control.estimates.length import log_normal
from muster.defaults import INTERVAL_SHARE, PRIOR_WAIT_MEDIAN_S, PRIOR_WAIT_SPREAD

_PRIOR = tuple(log_normal(PRIOR_WAIT_MEDIAN_S, PRIOR_WAIT_SPREAD))
# Long waits are learned late, after many other intervals were given: aim a little wider.
_TAIL = (1.0 - INTERVAL_SHARE) / 4
_STEP = 0.02
_SMALLEST, _LARGEST = 0.002, 0.07


@dataclass(frozen=True, slots=True)
class Interval:
    """The start is between these moments in four of five cases."""

    low_at: float
    high_at: float
    likely_at: float = 0.0
    """The median: the start is as likely before as after."""

    def holds(self, at: float) -> bool:
        return self.low_at <= at <= self.high_at


class Waits:
    """How long things have waited, and how good their intervals were."""

    def __init__(self) -> None:
        self._book = Book(_PRIOR)
        self._below = self._above = _TAIL
        self.told = 0
        self.held = 0

    def interval(self, traits: Traits, since: float, now: float, others_s: float = 0.0) -> Interval:
        """The interval for something that has waited since `since`; the longer it waits, the less short waits count.

        Waits are learned when they end, so a jam is not included while it lasts. Others before it that have waited
        for `others_s`, and still do, indicate that it may take as long as such waits do.
        """
        length = self._book.length(traits)
        waited_s = max(0.0, now - since)
        low_s = length.quantile(self._below, waited_s)
        high_s = max(length.quantile(1.0 - self._above, each_s) for each_s in (waited_s, max(waited_s, others_s)))
        return Interval(now + low_s, now + high_s, now + length.quantile(0.5, waited_s))

    def learn(self, traits: Traits, since: float, began: float, told: Interval | None = None) -> None:
        """It has started. Intervals grow while too few of them hold, and shrink while too many do."""
        self._book.learn(traits, began - since)
        if told is None:
            return
        self.told += 1
        self.held += told.holds(began)
        self._below = _moved(self._below, missed=began < told.low_at)
        self._above = _moved(self._above, missed=began > told.high_at)


def _moved(tail: float, missed: bool) -> float:
    return min(_LARGEST, max(_SMALLEST, tail + _STEP * (_TAIL - missed)))
