"""When a deployment that is tried gives its traffic back."""

from __future__ import annotations

import pytest

from muster.control.canary import Limits, Seen, reason_to_step_back, since, together

LIMITS = Limits(errors_percent=2.0, slower=2.0, least_requests=20)
FINE = Seen(900, 9, 40.0)


@pytest.mark.parametrize(
    ("canary", "others", "why"),
    [
        (Seen(100, 1, 40.0), FINE, None),
        (Seen(100, 3, 40.0), FINE, None),
        (Seen(100, 4, 40.0), FINE, "4.0 % of its 100 requests failed, 1.0 % of the others'"),
        (Seen(19, 19, 40.0), FINE, None),
        (Seen(100, 0, 80.0), FINE, None),
        (Seen(100, 0, 81.0), FINE, "its p95 is 81 ms, that of the others 40 ms"),
        (Seen(100, 0, 9.0), Seen(900, 0, 1.0), None),
        (Seen(100, 0, 500.0), Seen(3, 0, 1.0), None),
        (Seen(20, 20, 0.0), Seen(), "100.0 % of its 20 requests failed, 0.0 % of the others'"),
        (Seen(100, 50, 40.0), Seen(100, 50, 40.0), None),
    ],
)
def test_it_steps_back_when_it_does_worse_than_the_others(canary: Seen, others: Seen, why: str | None) -> None:
    assert reason_to_step_back(canary, others, LIMITS) == why


def test_only_what_came_since_the_try_began_counts() -> None:
    assert since(Seen(120, 30, 5.0), Seen(100, 29)) == Seen(20, 1, 5.0)
    assert since(Seen(7, 1, 5.0), Seen(100, 29)) == Seen(7, 1, 5.0)


def test_the_slowest_of_the_others_stands_for_them() -> None:
    assert together([Seen(10, 1, 5.0), Seen(10, 0, 9.0), Seen(0, 0, 99.0)]) == Seen(20, 1, 9.0)
    assert together([]) == Seen()
