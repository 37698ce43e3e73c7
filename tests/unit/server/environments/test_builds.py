"""What nodes are asked to build for queued runs."""

from __future__ import annotations

from muster.control.scheduling.builds import BuildPlan
from muster.control.scheduling.model import Node
from muster.server.environments.builds import Builds, Sharing
from muster.wire.node.recipes import Recipe

HERE, THERE = Node("c-0", "h0", "", 4), Node("c-1", "h1", "", 4)
NODES = {"c-0": "c", "c-1": "c"}
RECIPES: dict[str, tuple[Recipe, str | None]] = {"e": (Recipe("mine", ("six",)), "/usr/bin/python3")}


def wanted(node: Node, *runs: str) -> BuildPlan:
    place = ("e", node.host)
    return BuildPlan({place: node}, {place: runs})


def test_the_same_build_goes_on_while_others_join() -> None:
    builds = Builds()
    assert builds.take(wanted(HERE, "a"), NODES, RECIPES, {}) == {"c-0"}
    (first,) = builds.orders("c-0")
    assert (first.recipe.label, first.python, first.runs) == ("mine", "/usr/bin/python3", ("a",))
    assert builds.take(wanted(HERE, "a"), NODES, RECIPES, {}) == set()
    assert builds.take(wanted(HERE, "a", "b"), NODES, RECIPES, {}) == {"c-0"}
    (joined,) = builds.orders("c-0")
    assert (joined.id, joined.runs) == (first.id, ("a", "b"))
    assert builds.nodes() == {("c", "c-0")} and builds.orders("c-1") == ()


def test_what_nobody_wants_is_asked_for_no_more() -> None:
    builds = Builds()
    builds.take(wanted(HERE, "a"), NODES, RECIPES, {})
    assert builds.take(BuildPlan(), NODES, RECIPES, {}) == {"c-0"}
    assert builds.orders("c-0") == () and not builds.nodes()


def test_a_node_that_went_away_is_replaced() -> None:
    builds = Builds()
    builds.take(wanted(HERE, "a"), NODES, RECIPES, {})
    assert builds.take(wanted(THERE, "a"), {"c-1": "c"}, RECIPES, {}) == {"c-0", "c-1"}
    assert builds.orders("c-0") == () and len(builds.orders("c-1")) == 1


def test_a_report_settles_what_was_asked_for_and_nothing_else() -> None:
    builds = Builds()
    builds.take(wanted(HERE, "a"), NODES, RECIPES, {})
    (order,) = builds.orders("c-0")
    assert builds.settle("c-1", order.id, is_there=True) is None
    assert builds.settle("c-0", "another", is_there=True) is None
    asked = builds.settle("c-0", order.id, is_there=True)
    assert asked is not None and asked.order == order and builds.ready == {("e", "h0")}
    assert builds.settle("c-0", order.id, is_there=True) is None


def test_what_failed_is_asked_for_anew() -> None:
    builds = Builds()
    builds.take(wanted(HERE, "a"), NODES, RECIPES, {})
    (first,) = builds.orders("c-0")
    builds.settle("c-0", first.id, is_there=False)
    assert not builds.ready
    builds.take(wanted(HERE, "b"), NODES, RECIPES, {})
    (second,) = builds.orders("c-0")
    assert second.id != first.id


def test_a_node_hears_whether_it_shares_environments_and_where_it_keeps_them() -> None:
    builds = Builds()
    builds.take(wanted(HERE, "a"), NODES, RECIPES, {"c": Sharing(shared=True, same_machine=False)})
    (order,) = builds.orders("c-0")
    assert (order.shared, order.own_cache) == (True, False)
    alone = Builds()
    alone.take(wanted(HERE, "a"), NODES, RECIPES, {"c": Sharing(shared=False, same_machine=True)})
    (order,) = alone.orders("c-0")
    assert (order.shared, order.own_cache) == (False, False)
