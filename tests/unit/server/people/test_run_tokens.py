"""The token of a run opens that run alone, and ends with its attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.server.conftest import Server
from tests.unit.server.nodes.test_tokens import Node

from muster.job.explain import make_spec
from muster.server.nodes.orders import Material, Standing, run_order
from muster.server.people import run_tokens


@pytest.fixture
def node(server: Server) -> Node:
    return Node(server)


def call(server: Server, token: str, method: str, path: str, body: Any = None) -> int:
    raw = b"" if body is None else json.dumps(body).encode()
    return server.status(method, path, raw, authorization=f"Bearer {token}")


def name(run: str) -> str:
    return run.encode().hex()


def test_it_opens_the_run_itself_alone(server: Server, node: Node) -> None:
    token = run_tokens.make(server.context, node.run, 1)
    other = server.call("POST", "/runs", {"key": "o", "spec": {"command": "true", "compute": "two"}})[1]["id"]
    points = {"points": [{"name": "loss", "value": 1.0, "at": 1.0}]}
    assert call(server, token, "GET", f"/runs/{node.run}") == 200
    assert call(server, token, "POST", f"/runs/{node.run}/metrics", points) == 204
    assert call(server, token, "PATCH", f"/runs/{node.run}", {"tags": {"a": "b"}}) == 200
    refused: list[tuple[str, str, Any]] = [
        ("GET", f"/runs/{other}", None), ("GET", "/runs", None), ("POST", f"/runs/{other}/metrics", points),
        ("POST", f"/runs/{node.run}/cancel", {}), ("DELETE", f"/runs/{node.run}", None), ("GET", "/secrets", None),
        ("POST", "/runs", {"key": "n", "spec": {"command": "true", "compute": "two"}}), ("GET", "/people", None),
        ("GET", "/me", None), ("GET", "/tokens", None), ("POST", "/tokens", {}), ("GET", "/datastores", None),
        ("GET", "/data/workspaceblobstore/x", None), ("GET", f"/snapshots/{node.digest}/archive", None),
        ("GET", "/agents/two-0/orders?agent=a", None), ("PUT", "/secrets/A", {"value": "long enough"}),
    ]  # fmt: skip
    for method, path, body in refused:
        assert call(server, token, method, path, body) == 403, path


def test_it_ends_with_its_attempt_and_cannot_be_forged(server: Server, node: Node) -> None:
    token = run_tokens.make(server.context, node.run, 1)
    mac = token.removeprefix(run_tokens.PREFIX).split(".")[0]
    other = server.call("POST", "/runs", {"key": "o", "spec": {"command": "true", "compute": "two"}})[1]["id"]
    forged = [f"muster_run_{mac}.2.{name(node.run)}", f"muster_run_{mac}.1.{name(other)}", f"muster_run_{mac}.1.ff",
              f"muster_run_{'0' * 64}.1.{name(node.run)}",
              token + "x", token.upper(), "muster_run_", f"muster_run_{mac}.1."]  # fmt: skip
    for text in forged:
        assert call(server, text, "GET", f"/runs/{node.run}") == 403, text
    node.close()
    server.context.data.grants_checked.clear()
    assert call(server, token, "GET", f"/runs/{node.run}") == 403


def test_nodes_get_it_and_mask_it() -> None:
    spec = make_spec({"command": "true"})
    order = run_order(Standing("größe-1", 1, 0, 1, "ordered"), Material(spec, run_token="muster_run_x"))
    assert order.run_token and order.run_token not in repr(order)
