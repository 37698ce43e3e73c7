"""How much of a cluster was in use over time."""

import random

import pytest

from muster.control.utilisation import Span, averages, present, union


def test_averages_count_parts_of_stretches():
    spans = [Span(0, 5), Span(2.5, 30, 2.0), Span(-10, 1)]
    assert averages(spans, 0, 10, 3) == [0.5 + 1.5 + 0.1, 2.0, 2.0]


def test_what_lies_outside_counts_nothing():
    assert averages([Span(-5, 0), Span(20, 25), Span(7, 7)], 0, 10, 2) == [0.0, 0.0]


def test_the_sum_is_that_of_the_spans():
    chosen = random.Random(3)
    begins = [chosen.uniform(-20, 120) for _ in range(300)]
    spans = [Span(begin, begin + chosen.expovariate(0.05), chosen.randint(1, 8)) for begin in begins]
    inside = sum(max(0.0, min(span.end, 100) - max(span.begin, 0)) * span.amount for span in spans)
    assert sum(averages(spans, 0, 100 / 7, 7)) * 100 / 7 == pytest.approx(inside)


def test_a_node_that_runs_share_is_busy_once():
    assert union([Span(5, 9), Span(0, 6), Span(20, 21)]) == [Span(0, 9), Span(20, 21)]


def test_a_node_is_there_while_its_state_says_so():
    states = [(0.0, "preparing"), (1.0, "idle"), (4.0, "gone"), (6.0, "preparing")]
    assert present(states, frozenset(["gone"]), 8.0) == [Span(0.0, 1.0), Span(1.0, 4.0), Span(6.0, 8.0)]
