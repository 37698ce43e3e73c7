"""The simulator runs the scheduler's own code; a small month shows what a large one does."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from muster.cli.text import table
from muster.control.scheduling.model import Gang, Need
from muster.simulation import report
from muster.simulation.drawing import draw
from muster.simulation.jobs import CLUSTER, Job, Machines
from muster.simulation.month import Month, make_jobs
from muster.simulation.simulator import FIFO, LIMITS_ALONE, MUSTER, SHORTEST, WITHOUT_LIMITS, simulate

MONTH = Month(num_jobs=2000, num_nodes=30, days=8.0, mean_days_between_failures=30.0)


@pytest.fixture(scope="module")
def outcomes():
    jobs = make_jobs(MONTH)
    return {policy: simulate(MONTH.machines, jobs, policy) for policy in (MUSTER, WITHOUT_LIMITS, FIFO, SHORTEST)}


def test_a_month_is_the_same_every_time_and_every_job_starts(outcomes):
    first = outcomes[WITHOUT_LIMITS]
    assert first == simulate(MONTH.machines, make_jobs(MONTH), WITHOUT_LIMITS)
    assert len(first.waits_s) == 2000 and min(first.waits_s) >= 0
    assert first.failures > 0 and first.preemptions > 0
    assert 0.5 < first.use <= 1.0


def test_waits_are_shorter_than_first_come_and_nobody_waits_as_long_as_with_shortest_first(outcomes):
    ours, fifo, shortest = outcomes[MUSTER], outcomes[FIFO], outcomes[SHORTEST]
    assert ours.mean_wait_s < fifo.mean_wait_s
    assert ours.use >= fifo.use
    assert max(ours.waits_s) < max(shortest.waits_s)


def test_without_limits_at_least_half_of_the_gain_remains(outcomes):
    ours, without, fifo = outcomes[MUSTER], outcomes[WITHOUT_LIMITS], outcomes[FIFO]
    assert fifo.mean_wait_s - without.mean_wait_s >= 0.5 * (fifo.mean_wait_s - ours.mean_wait_s)


def test_the_wait_of_a_gpu_hour_weighs_jobs_by_their_work():
    """Two jobs on one node: the second waits for an hour, and is three times the work of the first."""
    jobs = [
        Job(Gang(name, name, CLUSTER, Need(1, 8, gpus), queued_at=float(number), seq=number), run_s)
        for number, (name, gpus, run_s) in enumerate([("first", None, 3600.0), ("second", 8, 10_800.0)])
    ]
    found = simulate(Machines(1, 8, 1.0), jobs, FIFO)
    assert found.gpu_hour_wait_s == pytest.approx((found.waits_s[0] + 3 * found.waits_s[1]) / 4)
    assert report.figures(found).mean_wait_of_a_gpu_hour_h == pytest.approx(0.75, abs=0.02)


def test_with_good_limits_everybody_is_treated_as_if_nothing_was_learned():
    """A promise that is kept is planned with; what was learned matters where there is none."""
    jobs = make_jobs(replace(MONTH, num_jobs=600))
    assert simulate(MONTH.machines, jobs, MUSTER).waits_s == simulate(MONTH.machines, jobs, LIMITS_ALONE).waits_s


def heavy_tailed(count, seed):
    """Mostly short jobs of two kinds on a small cluster, a few very long, and some that need a whole node."""
    dice = random.Random(seed)
    at, jobs = 0.0, []
    for number in range(count):
        at += dice.expovariate(1 / 260.0)
        wide = dice.random() < 0.02
        kind = dice.choice(("short", "long"))
        run_s = dice.lognormvariate(5.0 if kind == "short" else 7.0, 1.5)
        name = f"j{number}"
        gang = Gang(name, name, CLUSTER, Need(1, 1, 8 if wide else 1), queued_at=at, seq=number)
        jobs.append(Job(gang, min(max(1.0, run_s), 4 * 86_400.0), ((wide,), kind)))
    return Machines(2, 8, at / 86_400.0), jobs


def test_what_was_learned_saves_most_of_the_wait_and_start_intervals_hold():
    told = held = 0
    for seed in (1, 2, 3):
        machines, jobs = heavy_tailed(1500, seed)
        ours, fifo = (simulate(machines, jobs, policy) for policy in (WITHOUT_LIMITS, FIFO))
        assert ours.mean_wait_s < 0.5 * fifo.mean_wait_s
        assert ours.use > 0.98 * fifo.use
        told, held = told + ours.forecasts, held + ours.held
    assert told > 300
    assert 0.7 <= held / told <= 0.9


def test_no_job_starts_twice_at_a_time_and_gpus_are_never_given_twice():
    machines, jobs = heavy_tailed(400, 4)
    outcome = simulate(machines, jobs, WITHOUT_LIMITS)
    assert all(share <= 1.0 for _, share, _ in outcome.timeline)
    assert len(outcome.waits_s) == 400 and min(outcome.waits_s) >= 0


def test_what_is_printed_fits_into_eighty_columns(outcomes):
    found = [report.figures(outcome) for outcome in outcomes.values()]
    header, *lines = report.rows(found)
    printed = [*table(header, lines), *report.chart(list(outcomes.values()))]
    assert max(map(len, printed)) <= 80


def test_a_plot_has_room_for_the_longest_wait(outcomes):
    outcome = next(iter(outcomes.values()))
    machines, _ = heavy_tailed(4, 1)
    short = draw("a month", machines, [replace(outcome, waits_s=[60.0])])
    long = draw("a month", machines, [replace(outcome, waits_s=[60.0, 4_000_000.0])])
    assert ("100 h</text>" in short, "1,000 h</text>" in short) == (True, False)
    assert "1,000 h</text>" in long
