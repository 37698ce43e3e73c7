"""The nodes of a gang keep to the versions of the first that came to some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.agent.prepare.agreement import Agreement
from muster.environments.venvs.interpreters import host_platform
from muster.environments.venvs.recipe import Recipe
from muster.wire.node.agents import Order

HASH = "a" * 64
OLD = [f"six==1.16 --hash=sha256:{HASH}"]
NEW = ["six==1.17"]
SIX = Recipe("six", ("six",))


class Ledger:
    """What the server keeps, and whether it was asked."""

    def __init__(self) -> None:
        self.settled: dict[str, Any] = {}
        self.notes: list[str] = []
        self.asked = 0

    def __call__(self, order: Order, facts: Mapping[str, Any] | None) -> Mapping[str, Any]:
        self.asked += 1
        self.settled = self.settled or dict(facts or {})
        return self.settled

    def node(self, num_nodes: int = 2) -> Agreement:
        order = Order("r", 1, "prepare", num_nodes=num_nodes)
        return Agreement(self, order, lambda level, text: self.notes.append(text))


def facts(lock: list[str], python: str = "3.11.7") -> dict[str, Any]:
    return {"python": python, "lock": lock, "key": "k"}


def test_the_first_settles_and_the_next_begins_with_that() -> None:
    ledger = Ledger()
    first = ledger.node()
    assert first.before(SIX, "3.11") is SIX
    assert first.after(SIX, facts(OLD)) is SIX
    assert ledger.node().before(SIX, "3.11") == SIX.locked(OLD)


def test_one_that_comes_to_the_same_has_nothing_to_do_and_one_that_differs_builds_again() -> None:
    ledger = Ledger()
    ledger.node().after(SIX, facts(OLD))
    assert ledger.node().after(SIX, facts(["six==1.16"])) is SIX
    assert ledger.node().after(SIX, facts(NEW)) == SIX.locked(OLD)
    assert not ledger.notes


def test_a_node_of_another_kind_takes_the_versions_and_says_so() -> None:
    ledger = Ledger()
    ledger.settled = {"python": "3.12.1", "platform": host_platform(), "lock": OLD}
    assert ledger.node().before(SIX, "3.11") == SIX.locked(["six==1.16"])
    assert "settled by a node with Python 3.12" in ledger.notes[0]


def test_one_node_alone_and_one_with_given_versions_ask_nobody() -> None:
    ledger = Ledger()
    assert ledger.node(num_nodes=1).after(SIX, facts(NEW)) is SIX
    given = SIX.locked(OLD)
    assert ledger.node().before(given, "3.11") is given and ledger.node().after(given, facts(NEW)) is given
    assert ledger.asked == 0
