"""A server that ends waits for agents, and starts none by asking after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from sqlalchemy import insert
from tests.unit.server.conftest import Server

from muster.engines.base import NodeState
from muster.server.context import Context
from muster.server.database import tables
from muster.server.nodes import agents

NODES = (("two", "owned-silent"), ("hpc", "queued-there"), ("hpc", "queued-silent"))


def test_nobody_asks_after_silent_nodes_that_came_with_an_attempt(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine with a queue that is asked after them has what they left be delivered, by agents that then stay."""
    context = server.context
    row = {"name": "hpc", "engine": "queued", "options": {}, "state": "ready", "created_at": 0.0}
    server.write(lambda transaction: transaction.execute(insert(tables.clusters).values(**row)))
    for cluster, name in NODES:
        values = {"cluster": cluster, "name": name}
        server.write(lambda transaction, values=values: transaction.execute(insert(tables.nodes).values(**values)))
    monkeypatch.setattr(context.nodes.engines, "queue", lambda name: object() if name == "queued" else None)
    context.hub.contacts["queued-there"] = cast(Any, object())
    asked: list[tuple[str, str]] = []

    async def poll(_: Context, nodes: Sequence[tuple[str, str]]) -> dict[str, NodeState]:
        asked.extend(nodes)
        return {"owned-silent": NodeState("up"), "queued-there": NodeState("starting")}

    monkeypatch.setattr(agents, "poll", poll)
    assert sorted(server.runner.run(agents.living_agents(context))) == ["owned-silent", "queued-there"]
    assert sorted(asked) == [("hpc", "queued-there"), ("two", "owned-silent")]


def test_an_agent_that_was_started_and_has_not_said_hello_is_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay for ever: nobody else knows of it."""
    context = server.context
    engine = context.nodes.engines.owner("fake")
    assert engine is not None
    monkeypatch.setattr(type(engine), "on_this_machine", True)
    context.nodes.agent_tokens["two-0"] = "token"
    monkeypatch.setattr(engine, "poll", lambda _, nodes: {node: NodeState("starting") for node in nodes})
    assert server.runner.run(agents.living_agents(context)) == ["two-0"]
    monkeypatch.setattr(engine, "poll", lambda _, nodes: {node: NodeState("gone") for node in nodes})
    assert server.runner.run(agents.living_agents(context)) == []
