"""A thread beside its owner's: in order, bounded, gone when it is closed, and no failure is lost."""

from __future__ import annotations

import threading

import pytest

from muster.store.parallel import Beside


def test_calls_are_made_in_their_order() -> None:
    beside, found = Beside(), []
    for number in range(100):
        beside.start(found.append, number)
    beside.wait()
    assert found == list(range(100))
    beside.close()


def test_no_more_than_two_calls_wait() -> None:
    beside, gate, asked = Beside(), threading.Event(), threading.Semaphore(0)

    def ask() -> None:
        for _ in range(3):
            beside.start(gate.wait)
            asked.release()

    asker = threading.Thread(target=ask)
    asker.start()
    assert asked.acquire(timeout=10) and asked.acquire(timeout=10)
    assert not asked.acquire(timeout=0.05)
    gate.set()
    asker.join()
    beside.close()


def test_what_a_call_raises_reaches_the_owner() -> None:
    beside = Beside()
    beside.start(int, "no number")
    with pytest.raises(ValueError, match="no number"):
        beside.wait()
    beside.wait()
    beside.close()


def test_nothing_starts_before_the_first_call() -> None:
    before = set(threading.enumerate())
    beside = Beside()
    beside.wait()
    assert set(threading.enumerate()) == before
    beside.start(int)
    assert len(threading.enumerate()) == len(before) + 1
    beside.close()
    assert set(threading.enumerate()) == before
