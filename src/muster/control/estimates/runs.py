"""How long runs take: from the lengths of similar runs, the accuracy of time limits, and their progress."""

from __future__ import annotations

import math
from collections.abc import Hashable

from muster.control.estimates.book import Book, Kind, Traits
from muster.control.estimates.length import EDGES_S, NUM_BINS, Length, log_normal
from muster.defaults import PROGRESS_SPREAD, PROGRESS_STEADY_S, PROGRESS_STEADY_STEPS

_WHOLE_S = 2.0**16
"""The length that stands for a fully used limit in a book of used shares; its bins are half an octave wide."""
_USED = tuple(log_normal(_WHOLE_S / 2, 0.7))
_FEW = 1e-5


class Estimates:
    """What is known of the lengths of runs."""

    def __init__(self) -> None:
        self._lengths = Book()
        self._limits = Book(_USED)
        """The share of their limit that runs use, by the person who declared it."""
        self._limited: dict[tuple[Traits, Hashable, float], tuple[Kind, Kind, Length]] = {}

    def learn(self, traits: Traits, seconds: float, limit_s: float | None = None, owner: str = "") -> None:
        """A run has ended after so many seconds."""
        self._lengths.learn(traits, seconds)
        if limit_s:
            self._limits.learn((owner,), _WHOLE_S * min(1.0, seconds / limit_s))

    def length(self, traits: Traits, limit_s: float | None = None, owner: str = "") -> Length:
        """How long a run is likely to take; its limit is a hard one, and a hint as good as its owner's other limits."""
        kind = self._lengths.kind(traits)
        if not limit_s:
            return kind.length
        used = self._limits.kind((owner,))
        known = self._limited.get((traits, owner, limit_s))
        if known is None or known[0] is not kind or known[1] is not used:
            known = (kind, used, _with_hint(kind, used, limit_s))
            self._limited[traits, owner, limit_s] = known
        return known[2]


def from_progress(length: Length, elapsed_s: float, done: float, total: float) -> Length:
    """The whole length of a run that reports its progress: step `done` of `total` after `elapsed_s`."""
    if not 0 < done <= total or elapsed_s <= 0:
        return length
    # The beginning is slower or faster than the rest; the pace is known after a while, or after many steps.
    known = elapsed_s / PROGRESS_STEADY_S + done / PROGRESS_STEADY_STEPS
    spread = PROGRESS_SPREAD * max(0.1, 1.0 - done / total) * (1.0 + 1.0 / known)
    shares = log_normal(max(1.0, elapsed_s * total / done), max(0.05, spread))
    return Length(shares).within(length.limit_s)


def _with_hint(kind: Kind, used: Kind, limit_s: float) -> Length:
    """By Bayes' rule: the lengths of such runs, times the likelihood that their owner declares this limit for each."""
    shift = round(2 * math.log2(_WHOLE_S / limit_s))
    shares = [
        share * (used.shares[index + shift] if 0 <= index + shift < NUM_BINS else 0.0) + _FEW * share
        for index, share in enumerate(kind.shares)
        if EDGES_S[index] < limit_s
    ]
    return Length([*shares, *([0.0] * (NUM_BINS - len(shares)))]).within(limit_s)
