"""A background thread: in order, bounded, gone when it is closed, and no failure is lost."""

from __future__ import annotations

import threading

import pytest

from muster.store.pieces import BackgroundThread


def test_calls_are_made_in_their_order() -> None:
    background, found = BackgroundThread(), []
    for number in range(100):
        background.start(found.append, number)
    background.wait()
    assert found == list(range(100))
    background.close()


def test_no_more_than_two_calls_wait() -> None:
    background, gate, asked = BackgroundThread(), threading.Event(), threading.Semaphore(0)

    def ask() -> None:
        for _ in range(3):
            background.start(gate.wait)
            asked.release()

    asker = threading.Thread(target=ask)
    asker.start()
    assert asked.acquire(timeout=10) and asked.acquire(timeout=10)
    assert not asked.acquire(timeout=0.05)
    gate.set()
    asker.join()
    background.close()


def test_what_a_call_raises_reaches_the_owner() -> None:
    background = BackgroundThread()
    background.start(int, "no number")
    with pytest.raises(ValueError, match="no number"):
        background.wait()
    background.wait()
    background.close()


def test_nothing_starts_before_the_first_call() -> None:
    before = set(threading.enumerate())
    background = BackgroundThread()
    background.wait()
    assert set(threading.enumerate()) == before
    background.start(int)
    assert len(threading.enumerate()) == len(before) + 1
    background.close()
    assert set(threading.enumerate()) == before
