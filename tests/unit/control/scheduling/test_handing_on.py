"""Clusters whose gangs somebody else queues: Muster's quotas hold, the rest is theirs."""

from __future__ import annotations

from tests.unit.control.scheduling.conftest import capacity, cluster, gang

from muster.control.scheduling.model import Quota, Rules
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue


def handed_on(*gangs, nodes=2, **rules):
    return schedule({"c": Queue(gangs)}, capacity(cluster(nodes, gpus=4)), {"c": Rules(hands_on=True, **rules)}, 100.0)


def test_every_gang_is_handed_on_at_once_in_its_order():
    decision = handed_on(*(gang(f"g{number}", nodes=2, seq=number) for number in range(5)))
    assert [start.run_id for start in decision.starts] == ["g0", "g1", "g2", "g3", "g4"]
    assert decision.heads == {}


def test_places_are_as_many_as_the_gang_needs_with_the_gpus_that_it_asks_for():
    (start,) = handed_on(gang("g", nodes=2, gpus=3)).starts
    assert [len(place.gpus) for place in start.places] == [3, 3]
    (start,) = handed_on(gang("g", nodes=2)).starts
    assert [len(place.gpus) for place in start.places] == [4, 4]


def test_quotas_hold_and_say_so():
    decision = handed_on(gang("a", nodes=2, user="ada"), gang("b", seq=1, user="ada"), per_user=Quota(nodes=2))
    assert [start.run_id for start in decision.starts] == ["a"]
    assert "may hold 2 nodes" in decision.passed_over["b"]


def test_a_gang_larger_than_what_is_there_waits_and_a_stopped_cluster_hands_nothing_on():
    decision = handed_on(gang("big", nodes=3), gang("small", seq=1))
    assert [start.run_id for start in decision.starts] == ["small"]
    assert "needs 3 nodes" in decision.passed_over["big"]
    assert handed_on(gang("g"), closed="c is stopped").starts == ()


def test_parts_that_keep_off_each_other_are_handed_on_one_after_another():
    parts = [gang(f"part{number}", seq=number, apart="blue") for number in range(2)]
    decision = handed_on(*parts)
    assert [start.run_id for start in decision.starts] == ["part0"]
    assert "on which node part0 runs" in decision.passed_over["part1"]
