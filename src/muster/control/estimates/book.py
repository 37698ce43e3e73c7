"""Lengths learned from what has ended: from similar things if there are some, otherwise from all things.

Similarity is a row of traits from coarse to fine. Each level counts what ended there, with the latest weighing most,
and relies on the level above it when it has seen little itself; the coarsest relies on a documented prior.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from muster.control.estimates.length import NUM_BINS, Length, bin_of, log_normal
from muster.defaults import PRIOR_MEDIAN_S, PRIOR_SPREAD

Traits = tuple[Hashable, ...]
"""From coarse to fine; a level is a trait together with all coarser ones."""

PRIOR = tuple(log_normal(PRIOR_MEDIAN_S, PRIOR_SPREAD))
_LEAN = 2.0
"""How many observations of its own weigh as much as all levels above."""
_PRIOR_LEAN = 8.0
_MEMORY = 64
"""After this many further observations an old one weighs a third of a new one."""
_POPULATION_MEMORY = 2000
_STALE = 0.05


@dataclass(slots=True)
class _Level:
    memory: int
    counts: list[float] = field(default_factory=lambda: [0.0] * NUM_BINS)
    total: float = 0.0
    seen: int = 0

    def add(self, index: int) -> None:
        keep = 1.0 - 1.0 / self.memory
        if self.seen >= 8:
            self.counts = [count * keep for count in self.counts]
            self.total *= keep
        self.counts[index] += 1.0
        self.total += 1.0
        self.seen += 1


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of one kind, with the number of observations on each level."""

    shares: tuple[float, ...]
    length: Length
    seen: tuple[int, ...]


class Book:
    """Everything learned so far."""

    def __init__(self, prior: Sequence[float] = PRIOR) -> None:
        self._prior = prior
        self._levels: dict[Traits, _Level] = {(): _Level(_POPULATION_MEMORY)}
        self._known: dict[Traits, Kind] = {}

    def learn(self, traits: Traits, seconds: float) -> None:
        """Something of this kind has ended after so many seconds."""
        index = bin_of(seconds)
        for depth in range(len(traits) + 1):
            key = traits[:depth]
            if key not in self._levels:
                self._levels[key] = _Level(_MEMORY)
            self._levels[key].add(index)

    def length(self, traits: Traits) -> Length:
        """The expected length of something of this kind."""
        return self.kind(traits).length

    def kind(self, traits: Traits) -> Kind:
        """The same with the shares behind it; a new object when something new was learned."""
        levels = [self._levels[()]]
        for depth in range(1, len(traits) + 1):
            level = self._levels.get(traits[:depth])
            if level is None:
                break
            levels.append(level)
        seen = tuple(level.seen for level in levels)
        known = self._known.get(traits)
        if known is None or _outdated(known.seen, seen):
            shares = self._blend(levels)
            known = self._known[traits] = Kind(tuple(shares), Length(shares), seen)
        return known

    def _blend(self, levels: Sequence[_Level]) -> list[float]:
        shares, lean = list(self._prior), _PRIOR_LEAN
        for level in levels:
            whole = level.total + lean
            shares = [(count + lean * share) / whole for count, share in zip(level.counts, shares, strict=True)]
            lean = _LEAN
        return shares


def _outdated(then: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """A finer level appeared, or one has grown by more than a little."""
    if len(then) != len(now):
        return True
    return any(new - old > _STALE * old for old, new in zip(then, now, strict=True))
