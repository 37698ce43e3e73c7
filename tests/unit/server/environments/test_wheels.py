"""Compiled wheels: one node compiles, the others wait for it."""

from __future__ import annotations

import pytest

from muster.errors import JobError
from muster.server.environments import wheels
from muster.server.environments.wheels import CLAIM_S, Claims
from muster.wire.node.builds import CompiledWheel

ALIVE = (("a", "1"), ("b", "1"))


def test_one_compiles_and_the_others_wait() -> None:
    claims = Claims()
    assert claims.take("k", "a", "1", ALIVE, now=0.0)
    assert not claims.take("k", "b", "1", ALIVE, now=1.0)
    assert claims.take("k", "a", "1", ALIVE, now=2.0), "it asks again after its own death"
    assert claims.take("other", "b", "1", ALIVE, now=2.0)


def test_another_compiles_when_the_first_gives_up_or_is_gone_or_takes_too_long() -> None:
    claims = Claims()
    claims.take("k", "a", "1", ALIVE, now=0.0)
    claims.release("k", "b")
    assert not claims.take("k", "b", "1", ALIVE, now=1.0), "nobody gives up for another"
    claims.release("k", "a")
    assert claims.take("k", "b", "1", ALIVE, now=1.0)
    assert claims.take("k", "a", "2", (("a", "2"),), now=2.0), "b is gone"
    assert claims.take("k", "b", "1", (("a", "3"), ("b", "1")), now=3.0), "the agent that compiled was another"
    assert claims.take("k", "a", "3", (("a", "3"), ("b", "1")), now=3.0 + CLAIM_S)


def test_what_a_node_is_told() -> None:
    wheel = CompiledWheel("x.whl", 1, "0")
    assert wheels.answer(wheel, False).wheel == wheel
    assert [wheels.answer(None, compiles).state for compiles in (True, False)] == ["compile", "wait"]


@pytest.mark.parametrize("key", ["", "../runs", "a/b", "a.b", "x" * 65])
def test_a_key_is_no_path(key: str) -> None:
    with pytest.raises(JobError):
        wheels.location(key)
