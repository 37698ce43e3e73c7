"""Environments are built before the gangs that need them start, and nobody waits behind one that is built."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from muster.control.scheduling.builds import BuildPlan, Wish, plan_builds
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import Gang, Need, Node, Part, Rules, Running
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue

RULES = {"c": Rules()}


def hosts(count: int, pool: str = "") -> list[Node]:
    return [Node(f"c-{index}", pool or f"h{index}", "", 4, pool=pool) for index in range(count)]


def gang(name: str, nodes: int = 1, ranks: int = 4, excluded: Collection[str] = ()) -> Gang:
    return Gang(name, name, "c", Need(nodes, ranks, 0), excluded=frozenset(excluded))


def holding(*nodes: Node) -> Running:
    return Running("other", "other", "c", tuple(Part(node.name, node.host, 4) for node in nodes))


def wish(gang: Gang, content: str = "e") -> Wish:
    return Wish(gang, content, f"env-{content}")


def plan(
    wishes: Sequence[Wish],
    nodes: Sequence[Node],
    ready: Collection[tuple[str, str]] = (),
    running: Sequence[Running] = (),
    rules: Rules = RULES["c"],
    old: Collection[str] = (),
) -> tuple[BuildPlan, Capacity]:
    capacity = Capacity({"c": list(nodes)})
    for item in running:
        capacity.hold(item)
    return plan_builds(wishes, capacity, {"c": rules}, set(ready), lambda node: node.name not in old), capacity


def test_one_build_for_all_who_need_it_while_others_start() -> None:
    first, second, other = gang("a"), gang("b"), gang("z")
    found, capacity = plan([wish(first), wish(second)], hosts(2))
    assert {place: node.name for place, node in found.asked.items()} == {("e", "h0"): "c-0"}
    assert found.waiting == {("e", "h0"): ("a", "b")}
    assert found.held["a"] == "waits for its environment env-e, which is built on c-0"
    rules = {"c": replace(RULES["c"], held=found.held, kept_off=found.kept_off)}
    decision = schedule({"c": Queue([first, second, other])}, capacity, rules, 0.0)
    assert [start.run_id for start in decision.starts] == ["z"]
    assert decision.passed_over.keys() == {"a", "b"} and not decision.heads


def test_it_starts_where_its_environment_is() -> None:
    one = gang("a")
    found, capacity = plan([wish(one)], hosts(3), ready=[("e", "h2")])
    assert not found.asked and not found.held and found.kept_off == {"a": frozenset({"c-0", "c-1"})}
    rules = {"c": replace(RULES["c"], kept_off=found.kept_off)}
    (start,) = schedule({"c": Queue([one])}, capacity, rules, 0.0).starts
    assert [place.node.name for place in start.places] == ["c-2"]


def test_it_is_built_elsewhere_where_that_host_is_taken() -> None:
    nodes = hosts(2)
    found, _ = plan([wish(gang("a"))], nodes, ready=[("e", "h0")], running=[holding(nodes[0])])
    assert found.asked.keys() == {("e", "h1")} and "a" in found.held
    # Where nothing is free at all, it waits for nodes like everybody.
    full, _ = plan([wish(gang("a"))], nodes, ready=[("e", "h0")], running=[holding(*nodes)])
    assert not full.asked and not full.held and not full.kept_off


def test_a_gang_needs_it_on_as_many_hosts_as_it_has_nodes() -> None:
    found, _ = plan([wish(gang("a", 2))], hosts(3), ready=[("e", "h1")])
    assert len(found.asked) >= 1 and ("e", "h1") not in found.asked and "a" in found.held
    ready, _ = plan([wish(gang("a", 2))], hosts(3), ready=[("e", "h0"), ("e", "h1")])
    assert not ready.asked and ready.kept_off == {"a": frozenset({"c-2"})}


def test_nodes_of_one_machine_share_what_is_built_there() -> None:
    found, _ = plan([wish(gang("a", 2, ranks=1))], hosts(4, pool="here"))
    assert list(found.asked) == [("e", "here")]
    ready, _ = plan([wish(gang("a", 2, ranks=1))], hosts(4, pool="here"), ready=[("e", "here")])
    assert not ready.asked and not ready.held and not ready.kept_off


def test_while_it_waits_for_nodes_it_is_built_ahead() -> None:
    nodes = hosts(2)
    found, _ = plan([wish(gang("a"))], nodes, running=[holding(*nodes)])
    assert list(found.asked) == [("e", "h0")] and "a" in found.held


def test_a_gang_for_which_nodes_must_come_up_asks_for_them_meanwhile() -> None:
    found, _ = plan([wish(gang("a", 2))], hosts(1), rules=Rules(coming=1))
    assert list(found.asked) == [("e", "h0")] and not found.held
    nothing, _ = plan([wish(gang("a"))], [], rules=Rules(coming=1))
    assert not nothing.asked and not nothing.held


def test_who_waits_for_something_else_or_gets_nodes_of_its_own_is_left_alone() -> None:
    for rules in (Rules(hands_on=True), Rules(closed="stopped"), Rules(held={"a": "waits for b"})):
        found, _ = plan([wish(gang("a"))], hosts(1), rules=rules)
        assert found == BuildPlan()


def test_agents_of_an_older_version_build_when_the_gang_starts() -> None:
    found, _ = plan([wish(gang("a"))], hosts(1), old=["c-0"])
    assert not found.asked and not found.held and not found.kept_off


def test_nodes_that_it_keeps_off_do_not_build() -> None:
    found, _ = plan([wish(gang("a", excluded=["c-0"]))], hosts(2))
    assert list(found.asked) == [("e", "h1")]
