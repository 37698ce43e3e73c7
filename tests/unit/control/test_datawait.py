"""A job is told that it waits for data once that is certain, and not before."""

import pytest

from muster.control.datawait import advice


def test_a_job_that_waits_more_than_it_computes_is_told() -> None:
    text = advice(45.0, 15.0)
    assert text is not None and text.startswith("waits for data 75% of its time (45 s, and computes for 15 s)")


@pytest.mark.parametrize(("data_s", "compute_s"), [(10.0, 40.0), (20.0, 20.0), (9.0, 1.0), (0.0, 0.0)])
def test_others_are_left_alone(data_s: float, compute_s: float) -> None:
    assert advice(data_s, compute_s) is None
