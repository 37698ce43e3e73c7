"""The simulator runs the scheduler's own code; a small month shows what a large one does."""

from __future__ import annotations

from bench.month import Month, make_jobs, simulate

MONTH = Month(num_jobs=3000, num_nodes=40, days=10.0, mean_days_between_failures=30.0)


def test_a_month_is_the_same_every_time_and_every_job_starts():
    jobs = make_jobs(MONTH)
    first, second = simulate(MONTH, jobs, "muster"), simulate(MONTH, make_jobs(MONTH), "muster")
    assert first == second
    assert len(first.waits_s) == 3000 and min(first.waits_s) >= 0
    assert first.failures > 0 and first.preemptions > 0
    assert 0.5 < first.utilisation <= 1.0


def test_waits_are_shorter_than_first_come_and_nobody_waits_as_long_as_with_shortest_first():
    jobs = make_jobs(MONTH)
    ours, fifo, shortest = (simulate(MONTH, jobs, policy) for policy in ("muster", "fifo", "shortest"))
    assert ours.mean_wait_s < fifo.mean_wait_s
    assert ours.utilisation >= fifo.utilisation
    assert max(ours.waits_s) < max(shortest.waits_s)
