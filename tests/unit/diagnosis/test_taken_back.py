"""Nodes that whoever lent them took back: whose fault an end is, and what follows."""

from __future__ import annotations

import pytest

from muster.control.retry import Past, Policy, Retry, Stop, decide
from muster.diagnosis.verdict import judge
from muster.wire.verdicts import Ending, Evidence, NodeEvidence, RankEvidence

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: bad batch\n'


def ended(code: str, *ranks: RankEvidence, leaving: bool = True, stop: str = "preempted") -> str:
    nodes = (NodeEvidence(0, "n1", leaving=leaving),)
    return judge(Evidence(ranks, nodes, stop, ending=Ending(code, f"Slurm says {code}"))).code


@pytest.mark.parametrize("code", ["cancelled", "preempted", "timeout", "time_slice", "node_lost", "host_oom"])
def test_a_rank_that_was_told_to_go_ends_as_the_lender_says(code: str):
    assert ended(code, RankEvidence(0, "n1", signal=15)) == code
    assert ended(code, RankEvidence(0, "n1", exit_code=143), stop="rank_failed", leaving=False) == code


def test_a_rank_that_failed_by_itself_before_is_to_blame():
    failed = RankEvidence(0, "n1", exit_code=1, tail=TRACEBACK)
    assert ended("preempted", failed, stop="rank_failed", leaving=False) == "exception"


def test_a_run_that_was_done_in_time_is_done():
    assert ended("cancelled", RankEvidence(0, "n1", exit_code=0), stop="done", leaving=False) == "completed"


def test_an_end_of_which_the_lender_says_nothing_special_is_judged_as_ever():
    assert ended("", RankEvidence(0, "n1", signal=15, expected=True)) == "preempted"


def test_a_slice_goes_on_without_end_as_long_as_it_gets_on():
    past = [Past("time_slice", progressed=True)] * 40
    decision = decide(past, Policy(), "run")
    assert isinstance(decision, Retry) and decision.delay_s == 0.0
    stuck = decide([*past, Past("time_slice")], Policy(), "run")
    assert isinstance(stuck, Stop) and "no checkpoint" in stuck.why


def test_slices_use_up_no_budget():
    past = [Past("time_slice", progressed=True)] * 40 + [Past("preempted")]
    assert isinstance(decide(past, Policy(preemption=1), "run"), Retry)


def test_the_node_that_the_lender_lost_is_to_blame_and_not_the_healthy_one_that_it_asked_to_go():
    nodes = (NodeEvidence(0, "n1", leaving=True), NodeEvidence(1, "n2"))
    ranks = (RankEvidence(0, "n1", signal=15, expected=True), RankEvidence(1, "n2", state="running"))
    verdict = judge(Evidence(ranks, nodes, "preempted", ending=Ending("node_lost", "n2 is down", ("n2",))))
    assert (verdict.code, verdict.node) == ("node_lost", "n2")
    unnamed = judge(Evidence(ranks, nodes, "preempted", ending=Ending("node_lost", "a node is down")))
    assert (unnamed.code, unnamed.node) == ("node_lost", None)
