"""Fair shares: who has used less of a cluster lately comes first, within bounds, and past use decays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.control.scheduling.model import Running
from muster.defaults import FAIR_SHARE_MOST_S, SHARE_HALF_LIFE_S


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a user stands among the others."""

    behind_s: float = 0.0
    """How much later its runs count as queued; negative: earlier."""
    weight: float = 1.0
    """By how much its runs count as longer, among those that may start early."""


class Ledger:
    """What each user has used of a cluster, in GPU seconds (node seconds without GPUs), with exponential decay."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}

    def add(self, user: str, seconds: float, now: float) -> None:
        """Record the use of a run of this user that has ended."""
        self._used[user] = (self.used(user, now) + seconds, now)

    def used(self, user: str, now: float) -> float:
        amount, at = self._used.get(user, (0.0, now))
        return amount * math.pow(0.5, max(0.0, now - at) / SHARE_HALF_LIFE_S)

    def with_running(self, running: Iterable[Running], users: Iterable[str], now: float) -> dict[str, float]:
        """What each of these users has used so far, with what they are using now."""
        found = {user: self.used(user, now) for user in users}
        for item in running:
            if item.user in found:
                found[item.user] += weight_of(item) * min(max(0.0, now - item.since), SHARE_HALF_LIFE_S)
        return found


def weight_of(running: Running) -> float:
    """How much of a cluster it holds."""
    return running.num_gpus or len(running.parts)


def standings(used: Mapping[str, float]) -> dict[str, Standing]:
    """Where each user stands; empty where there are no others to be fair to."""
    mean = sum(used.values()) / len(used) if len(used) > 1 else 0.0
    if not mean:
        return {}
    return {
        user: Standing(FAIR_SHARE_MOST_S * (amount - mean) / (amount + mean), min(4.0, max(0.25, amount / mean)))
        for user, amount in used.items()
    }
