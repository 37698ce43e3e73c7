"""Which node builds an environment, which takes it, and what happens when it does not come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from muster.agent.mover import Failed, Mover
from muster.agent.prepare import environments
from muster.agent.prepare.bundles import Bundles
from muster.agent.prepare.environments import NodeEnvironments
from muster.errors import ServerUnavailable
from muster.host.children import Abandoned
from muster.wire.node.builds import EnvironmentClaim, PackedEnvironment

PACKED = PackedEnvironment(5, "0" * 64)


@dataclass
class FakeLink:
    """What the server says, one answer after the other."""

    answers: list[EnvironmentClaim | Exception]
    said: list[str] = field(default_factory=list)
    heard: threading.Event = field(default_factory=threading.Event)

    def claim_environment(self, key: str) -> EnvironmentClaim:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def keep_environment(self, key: str, packed: PackedEnvironment) -> None:
        self.said.append(f"keep {key} {packed.size}")
        self.heard.set()

    def release_environment(self, key: str) -> None:
        self.said.append(f"release {key}")
        self.heard.set()

    def close(self) -> None:
        return


@dataclass(frozen=True)
class FakeBundles:
    link: Any
    mover: Mover = field(default_factory=lambda: Mover("mark", threading.Event()))
    fails: bool = False

    def doing(self, text: str) -> None:
        return

    @contextmanager
    def staged(self, kind: str, name: str, access: object, what: str) -> Iterator[Path]:
        if self.fails:
            raise Failed("data_unavailable", "no other node has it any more")
        yield Path("/staged")

    def offer(self, key: str, folder: Path, what: str) -> PackedEnvironment:
        if self.fails:
            raise Failed("disk_full", "no room")
        return PACKED


def node(link: FakeLink, fails: bool = False, unwanted: bool = False) -> NodeEnvironments:
    event = threading.Event()
    if unwanted:
        event.set()
    return NodeEnvironments(cast(Bundles, FakeBundles(link, fails=fails)), event)


def taken(made: NodeEnvironments, is_here: bool = False) -> Path | None:
    with made.taken("k", lambda: is_here, "the environment") as packed:
        return packed


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_ASK_AGAIN_S", 0.0)


def test_a_node_waits_for_the_one_that_builds_and_takes_it() -> None:
    link = FakeLink([EnvironmentClaim("wait"), EnvironmentClaim("there", PACKED)])
    assert taken(node(link)) == Path("/staged/environment.tar")


def test_what_came_to_the_node_by_another_way_is_not_taken() -> None:
    assert taken(node(FakeLink([EnvironmentClaim("wait")])), is_here=True) is None


def test_what_does_not_come_is_built_here() -> None:
    assert taken(node(FakeLink([EnvironmentClaim("there", PACKED)]), fails=True)) is None


def test_without_the_server_it_is_built_here() -> None:
    assert taken(node(FakeLink([ServerUnavailable("away")]))) is None


def test_nobody_waits_for_what_is_unwanted() -> None:
    with pytest.raises(Abandoned):
        taken(node(FakeLink([EnvironmentClaim("wait")]), unwanted=True))


@pytest.mark.parametrize(("fails", "said"), [(False, "keep k 5"), (True, "release k")])
def test_who_built_it_gives_it_to_others_or_gives_the_claim_back(fails: bool, said: str) -> None:
    link = FakeLink([EnvironmentClaim("build")])
    made = node(link, fails)
    assert taken(made) is None
    made.keep("k", lambda: nullcontext(Path("/built")), "the environment")
    assert link.heard.wait(30) and link.said == [said]
    made.close()
    assert link.said == [said]


def test_a_build_that_failed_gives_the_claim_back() -> None:
    link = FakeLink([EnvironmentClaim("build")])
    made = node(link)
    taken(made)
    made.close()
    assert link.said == ["release k"]
