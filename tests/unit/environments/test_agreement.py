"""The nodes of a gang keep to the versions of the first that came to some."""

from __future__ import annotations

import threading
from pathlib import Path

from muster.environments import agreement
from muster.environments.caller import Caller
from muster.environments.venvs.interpreters import host_platform
from muster.wire.environments import AgreedVersions, BuiltEnvironment
from muster.wire.node.recipes import Recipe

HASH = "a" * 64
OLD = (f"six==1.16 --hash=sha256:{HASH}",)
NEW = ("six==1.17",)
SIX = Recipe("six", ("six",))


class Ledger:
    """What the server keeps, and whether it was asked."""

    def __init__(self) -> None:
        self.settled = AgreedVersions()
        self.notes: list[str] = []
        self.asked = 0

    def agree(self, built: BuiltEnvironment | None) -> AgreedVersions:
        self.asked += 1
        if self.settled.lock is None and built is not None:
            self.settled = AgreedVersions(built.python, built.platform, built.lock)
        return self.settled

    def node(self, num_nodes: int = 2) -> Caller:
        return Caller(
            "r",
            1,
            num_nodes,
            None,
            mark="m",
            environ={},
            folder=Path("/nowhere"),
            log=Path("/nowhere/log"),
            unwanted=threading.Event(),
            begins=lambda: None,
            doing=lambda text: None,
            note=lambda level, text: self.notes.append(text),
            agree=self.agree,
            unpack=lambda digest, folder: None,
        )


def facts(lock: tuple[str, ...], python: str = "3.11.7") -> BuiltEnvironment:
    return BuiltEnvironment("k", python, lock)


def test_the_first_settles_and_the_next_begins_with_that() -> None:
    ledger = Ledger()
    first = ledger.node()
    assert agreement.before(first, SIX, "3.11") is SIX
    assert agreement.after(first, SIX, facts(OLD)) is SIX
    assert agreement.before(ledger.node(), SIX, "3.11") == SIX.locked(OLD)


def test_one_that_comes_to_the_same_has_nothing_to_do_and_one_that_differs_builds_again() -> None:
    ledger = Ledger()
    agreement.after(ledger.node(), SIX, facts(OLD))
    assert agreement.after(ledger.node(), SIX, facts(("six==1.16",))) is SIX
    assert agreement.after(ledger.node(), SIX, facts(NEW)) == SIX.locked(OLD)
    assert not ledger.notes


def test_a_node_of_another_kind_takes_the_versions_and_says_so() -> None:
    ledger = Ledger()
    ledger.settled = AgreedVersions("3.12.1", host_platform(), OLD)
    assert agreement.before(ledger.node(), SIX, "3.11") == SIX.locked(["six==1.16"])
    assert "settled by a node with Python 3.12" in ledger.notes[0]


def test_one_node_alone_and_one_with_given_versions_ask_nobody() -> None:
    ledger = Ledger()
    assert agreement.after(ledger.node(num_nodes=1), SIX, facts(NEW)) is SIX
    given = SIX.locked(OLD)
    assert (
        agreement.before(ledger.node(), given, "3.11") is given
        and agreement.after(ledger.node(), given, facts(NEW)) is given
    )
    assert ledger.asked == 0
