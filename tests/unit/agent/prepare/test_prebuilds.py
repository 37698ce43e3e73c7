"""Builds for queued runs: which orders begin one, which go on with it, and when one ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.agent.prepare import prebuilds
from muster.agent.prepare.prebuilds import Prebuilds
from muster.agent.services import NodeServices
from muster.wire.node.builds import BuildOrder
from muster.wire.node.recipes import Recipe


@pytest.fixture
def begun() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def builds(tmp_path: Path, begun: list[Callable[[], None]]) -> Prebuilds:
    said: dict[Any, str] = {}
    services = SimpleNamespace(paths=SimpleNamespace(root=tmp_path), doing=lambda key, text: said.update({key: text}))
    return Prebuilds(cast(NodeServices, services), begun.append)


def order(id: str, *runs: str) -> BuildOrder:
    return BuildOrder(id, "content", Recipe("mine"), runs or ("a",))


def build_of(job: Callable[[], None]) -> prebuilds.Prebuild:
    return cast(prebuilds.Prebuild, cast(Any, job).__self__)


def test_an_order_that_comes_again_is_one_build(builds: Prebuilds, begun: list[Callable[[], None]]) -> None:
    builds.apply([order("1")])
    builds.apply([order("1", "a", "b")])
    # A server that was started afresh asks for the same under another name.
    builds.apply([order("2", "a", "b")])
    assert len(begun) == 1 and build_of(begun[0]).order == order("2", "a", "b")


def test_what_was_reported_and_is_asked_for_anew_is_built_anew(
    builds: Prebuilds, begun: list[Callable[[], None]]
) -> None:
    builds.apply([order("1")])
    build_of(begun[0]).is_reported = True
    builds.apply([order("1")])
    assert len(begun) == 1
    builds.apply([order("2")])
    assert len(begun) == 2


def test_what_nobody_wants_ends_after_a_while(
    builds: Prebuilds, begun: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(prebuilds.time, "monotonic", lambda: now[0])
    builds.apply([order("1")])
    builds.apply([])
    builds.tend()
    assert not build_of(begun[0]).unwanted.is_set()
    builds.apply([order("1")])
    builds.apply([])
    now[0] += 60.0
    builds.tend()
    assert build_of(begun[0]).unwanted.is_set()
    builds.apply([order("1")])
    assert len(begun) == 2
