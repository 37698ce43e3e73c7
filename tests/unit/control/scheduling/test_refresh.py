"""Estimates of those who wait are made again as runs like them end."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.control.scheduling.conftest import gang

from muster.control.estimates.length import Length, log_normal
from muster.control.scheduling.model import UNKNOWN, Decision, Head
from muster.control.scheduling.queue import Queue

MINUTES, HOURS = (Length(log_normal(median_s, 0.3)) for median_s in (300.0, 4 * 3600.0))


def test_everybody_has_a_turn_however_many_wait():
    queue = Queue([gang(f"g{number}", seq=number) for number in range(7)])
    seen = [item.run_id for _ in range(3) for item in queue.some(3)]
    assert sorted(seen) == [f"g{number}" for number in range(7)]
    assert [item.run_id for item in queue.some(3)] == ["g0", "g1", "g2"]


def test_another_estimate_moves_a_gang_and_keeps_what_was_noted_of_it():
    old, other = gang("a", length=HOURS), gang("b", length=MINUTES, queued_at=1800.0, seq=1)
    queue = Queue([old, other])
    assert [item.run_id for item in queue] == ["b", "a"]
    queue.note(Decision(heads={"c": Head(old, UNKNOWN, frozenset({"c-0"}), first_at=5.0)}))
    newer = replace(old, length=MINUTES)
    queue.replace(old, newer)
    assert [item.run_id for item in queue] == ["a", "b"] and len(queue) == 2
    assert queue.passed("a").first_at == 5.0
    queue.remove(newer)
    assert [item.run_id for item in queue] == ["b"]
