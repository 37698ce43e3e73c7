"""Lengths that are learned: distributions, levels of likeness, limits as hints, progress, waits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.estimates.book import Book
from muster.control.estimates.length import EDGES_S, NUM_BINS, Length, bin_of, log_normal
from muster.control.estimates.runs import Estimates, from_progress
from muster.control.estimates.traits import traits_of
from muster.control.estimates.waits import Waits
from muster.defaults import PRIOR_MEDIAN_S

seconds = st.floats(1.0, EDGES_S[-1] / 2)
lengths = st.lists(st.floats(0.0, 1.0), min_size=NUM_BINS, max_size=NUM_BINS).filter(lambda row: sum(row) > 0.01)


def test_an_empty_book_gives_the_documented_prior():
    length = Book().length(("anything",))
    assert length.quantile(0.5) == pytest.approx(PRIOR_MEDIAN_S, rel=0.1)
    assert 3 * 3600 < length.quantile(0.9) < 7 * 3600


@given(lengths, st.floats(0.05, 0.9), seconds)
def test_quantiles_rise_and_what_remains_never_ends_in_the_past(shares, share, elapsed_s):
    length = Length(shares)
    assert length.quantile(share, elapsed_s) >= 0
    assert length.quantile(share + 0.05, elapsed_s) >= length.quantile(share, elapsed_s)


@given(lengths, seconds, seconds)
def test_the_expected_excess_falls_with_the_slack_and_is_bounded(shares, slack_s, most_s):
    length = Length(shares)
    assert length.excess_s(slack_s) <= length.excess_s(0.0) + 1e-6
    assert length.excess_s(2 * slack_s) <= length.excess_s(slack_s) + 1e-6
    assert length.excess_s(slack_s, most_s=most_s) <= min(most_s, length.excess_s(slack_s)) * 1.0001 + 1e-6


@given(lengths, seconds)
def test_nothing_outlasts_its_limit(shares, limit_s):
    length = Length(shares).within(limit_s)
    assert length.quantile(0.99) <= limit_s
    assert length.excess_s(limit_s) == 0.0
    assert length.quantile(0.5, elapsed_s=limit_s) == 0.0


def test_the_mean_is_that_of_what_was_measured():
    dice = random.Random(1)
    measured = [dice.lognormvariate(6.0, 1.0) for _ in range(5000)]
    shares = [0.0] * NUM_BINS
    for item in measured:
        shares[bin_of(item)] += 1
    assert Length(shares).excess_s(0.0) == pytest.approx(sum(measured) / len(measured), rel=0.05)


def test_heavy_tails_last_longer_the_longer_they_have_lasted():
    length = Length(log_normal(900.0, 2.3))
    assert length.quantile(0.5, 86_400.0) > 10 * length.quantile(0.5)


def test_like_runs_count_most_and_strangers_where_there_are_none():
    book = Book()
    for _ in range(50):
        book.learn(("small", "ada", "short.py"), 60.0)
        book.learn(("small", "bob", "long.py"), 36_000.0)
    assert book.length(("small", "ada", "short.py")).quantile(0.7) < 120
    assert book.length(("small", "bob", "long.py")).quantile(0.3) > 18_000
    stranger = book.length(("large", "eve", "new.py"))
    assert stranger.quantile(0.1) < 120 and stranger.quantile(0.9) > 18_000


def test_what_is_new_soon_outweighs_what_was():
    book = Book()
    for _ in range(200):
        book.learn(("ada",), 60.0)
    for _ in range(100):
        book.learn(("ada",), 7200.0)
    assert book.length(("ada",)).quantile(0.5) > 3600


def test_a_limit_is_a_hint_by_what_its_owner_s_limits_were_worth():
    known = Estimates()
    for number in range(40):
        known.learn(("x", number), 1800.0 + number, 3600.0, "exact")
        known.learn(("x", number), 60.0 + number, 86_400.0, "careless")
    exact = known.length(("new",), 36_000.0, "exact")
    careless = known.length(("new",), 36_000.0, "careless")
    assert exact.quantile(0.5) > 5 * careless.quantile(0.5)
    assert exact.quantile(0.999) <= 36_000.0
    assert known.length(("new",)).quantile(0.999) > 36_000.0


def test_progress_says_how_much_remains():
    guess = Length(log_normal(900.0, 2.3))
    known = from_progress(guess, 3600.0, 10, 40)
    assert known.quantile(0.5, 3600.0) == pytest.approx(3 * 3600.0, rel=0.25)
    nearly = from_progress(guess, 3600.0, 39, 40)
    assert nearly.quantile(0.9, 3600.0) < 1200
    assert from_progress(guess, 3600.0, 0, 40) is guess
    early, few = from_progress(guess, 15.0, 300, 3000), from_progress(guess, 15.0, 1, 10)
    assert 100 < early.quantile(0.9, 15.0) < 300 < few.quantile(0.9, 15.0), "many steps tell the pace, one does not"
    assert from_progress(guess.within(5000.0), 3600.0, 10, 40).quantile(0.9, 3600.0) <= 1400.0


def test_traits_go_from_size_to_the_whole_command_and_the_name():
    spec = {"command": "python train.py --lr 0.1", "inputs": {"data": {"path": "x"}}, "display_name": "sweep"}
    first = traits_of((1, 8), "ada", "resnet", spec)
    other = traits_of((1, 8), "ada", "resnet", {**spec, "command": "python train.py --lr 0.2"})
    assert first[:6] == other[:6] and first != other
    assert first[3] == "train.py"


def test_intervals_hold_in_about_four_of_five_cases():
    dice, waits = random.Random(3), Waits()
    for number in range(3000):
        kind = dice.choice(("narrow", "wide"))
        wait_s = dice.lognormvariate(5.0 if kind == "narrow" else 8.0, 1.0)
        told = waits.interval((kind,), float(number), float(number))
        waits.learn((kind,), float(number), number + wait_s, told)
    assert 0.75 <= waits.held / waits.told <= 0.92


def test_an_interval_moves_on_while_one_waits():
    waits = Waits()
    for wait_s in (60.0, 120.0, 7200.0) * 20:
        waits.learn(("x",), 0.0, wait_s)
    first, later = waits.interval(("x",), 0.0, 0.0), waits.interval(("x",), 0.0, 1000.0)
    assert first.low_at < 120 and later.low_at > 1000.0
    assert later.likely_at > 3600


def test_an_interval_reaches_further_while_others_wait_for_long():
    """A jam is learned when it is over; until then those who are in it are the only sign of it."""
    waits = Waits()
    for wait_s in (60.0, 120.0, 600.0, 7200.0) * 20:
        waits.learn(("x",), 0.0, wait_s)
    calm, jam = waits.interval(("x",), 0.0, 0.0), waits.interval(("x",), 0.0, 0.0, others_s=40_000.0)
    assert jam.low_at == calm.low_at
    assert jam.high_at > 2 * calm.high_at
    assert waits.interval(("x",), 0.0, 0.0, others_s=7000.0).high_at >= calm.high_at
