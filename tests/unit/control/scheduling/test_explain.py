"""Why a run waits, in a sentence, and when it starts."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.unit.control.scheduling.conftest import capacity, cluster, gang, machine, running

from muster.control.scheduling.explain import Explanations, clock, head_reason, impossible
from muster.control.scheduling.model import UNKNOWN, Head, Node, Rules
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Passed, Queue
from muster.defaults import LATE_S


def explained(queue, found, rules=None, now=0.0):
    rules = {"c": rules or Rules()}
    decision = schedule({"c": Queue(queue)}, found, rules, now)
    reasons = {run_id: why for run_id, why in decision.passed_over.items() if why}
    reasons |= {head.gang.run_id: head_reason(head, found, rules["c"], now) for head in decision.heads.values()}
    started = {start.run_id for start in decision.starts}
    waiting = [item for item in Queue(queue) if item.run_id not in started]
    known = {item.run_id: item for item in waiting}
    return Explanations({"c": waiting}, known.get, decision.heads, reasons, frozenset(decision.passed_over), now)


def test_the_first_is_told_what_is_free_who_holds_the_rest_and_until_when():
    now = time.time()
    nodes = cluster(4, 8, 4)
    held = running("resnet-7", nodes[3], gpus="0123", until=now + 1200)
    said = explained([gang("a", nodes=4, gpus=4)], capacity(nodes, held), now=now).of("a")
    at = clock(now + 1200)
    assert said.reason == f"needs 4 nodes with 4 GPUs; 3 are free, the 4th is held by resnet-7 until about {at}"
    assert said.starts_at == now + 1200


def test_on_one_machine_cpus_and_gpus_count():
    nodes = machine(4, 2, "01")
    held = running("x", nodes[0], ranks=2, gpus=("0",))
    said = explained([gang("a", gpus=0)], capacity(nodes, held)).of("a")
    assert said.reason == "needs 1 CPU slot for its ranks; 0 of 2 are free, the rest is held by x"
    assert said.starts_at is None
    door = running("door", nodes[1], ranks=0)
    assert explained([gang("a", gpus=0)], capacity(nodes, held, door)).of("a").reason.endswith("is held by x")
    said = explained([gang("a", gpus=2)], capacity(nodes, held)).of("a")
    assert said.reason == "needs 2 GPUs; 1 of 2 are free, the rest is held by x"


def test_everybody_behind_gets_a_reason():
    nodes = cluster(2)
    held = running("x", nodes[0], nodes[1], ranks=2, until=600)
    queue = [gang(f"g{index}", nodes=2, ranks=2, limit_s=1000, seq=index) for index in range(4)]
    told = explained(queue, capacity(nodes, held))
    assert told.of("g1").reason == "waits behind g0 in the queue of c"
    assert told.of("g3").reason == "waits behind g0 and 2 more in the queue of c"
    assert told.of("nobody") is None


def test_one_that_was_passed_over_is_told_how_often_and_when_it_starts_at_the_latest():
    now = time.time()
    nodes = cluster(2)
    head = Head(gang("wide", nodes=2, ranks=2, queued_at=now), UNKNOWN, frozenset({"c-0", "c-1"}), now + 60)
    held = capacity(nodes, running("x", nodes[0], ranks=2), running("y", nodes[1], ranks=2, until=now + 600))
    said = head_reason(head, held, Rules(), now, passed=Passed(2))
    latest = "; passed over twice; starts at the latest when x, y have ended, and those who pass it "
    assert said.endswith(latest + "in the 7 days after that")
    due = replace(head, due_at=now)
    said = head_reason(due, held, Rules(), now, passed=Passed(2))
    assert said.endswith(latest + f"by {clock(now + LATE_S)}")
    said = head_reason(due, held, Rules(), due.closes_at, passed=Passed(9))
    assert said.endswith("; passed over 9 times, and by nobody any more; starts at the latest when x, y have ended")
    counted = replace(due, passes_left=998)
    said = head_reason(counted, held, Rules(), now, passed=Passed(2))
    assert said.endswith(latest + f"by {clock(now + LATE_S)}; at most 998 more pass it")
    said = head_reason(replace(head, passes_left=0), held, Rules(), now, passed=Passed(1000))
    assert said.endswith("; passed over 1,000 times, and by nobody any more; starts at the latest when x, y have ended")
    limited = replace(head, starts_by=now + 600)
    assert f"starts at the latest by {clock(now + 600)}" in head_reason(limited, held, Rules(), now, passed=Passed(1))
    assert "passed over" not in head_reason(head, held, Rules(), now)


def test_nodes_that_come_are_named():
    said = explained([gang("a", nodes=3)], capacity(cluster(1)), Rules(coming=2)).of("a")
    assert said.reason == "needs 3 nodes; 1 is free, 2 more must come up first"


def test_says_what_can_never_start():
    assert impossible(gang("a", nodes=5), machine(4)) == "needs 5 nodes; c has at most 4"
    assert impossible(gang("a", gpus=2), machine()) == "needs 2 GPUs on a node; the largest node of c has 0"
    shared = impossible(gang("a", nodes=3, gpus=2), machine(gpus="0123"))
    assert shared == "needs 3 × 2 GPUs; c has 4 in all, shared by its simulated nodes"
    assert impossible(gang("a", nodes=2, gpus=2), machine(gpus="0123")) is None
    own = [Node(f"n{index}", f"h{index}", "", 2, ("0", "1")) for index in range(3)]
    assert impossible(gang("a", nodes=3, gpus=2), own) is None


def test_parts_of_gpus_are_named_as_such():
    assert impossible(gang("a", share=0.5), machine()) == "needs 0.5 of a GPU on a node; the largest node of c has 0"
    said = impossible(gang("a", nodes=4, share=0.6), machine(gpus="012"))
    assert said == "needs 4 × 0.6 of a GPU; c has 3 in all, shared by its simulated nodes"
    assert impossible(gang("a", nodes=4, share=0.5), machine(gpus="01")) is None
    nodes = machine(2, cpus=8, gpus="0")
    held = running("x", nodes[0], gpus=("0",), share=0.75)
    said = explained([gang("a", share=0.5)], capacity(nodes, held)).of("a")
    assert said.reason.startswith(
        "needs 0.5 of a GPU; 0 of 1 are free, and no other has enough left, the rest is held by x"
    )
    own = cluster(1, cpus=8, gpus=1)
    held = running("x", own[0], gpus=("0",), share=0.75)
    said = explained([gang("a", share=0.5)], capacity(own, held)).of("a")
    assert said.reason.startswith("needs 1 node with 0.5 of a GPU; none are free")
