"""The port that is opened for nodes answers agents, and nobody else."""

from __future__ import annotations

import pytest
from tests.unit.server.conftest import Server

from muster.server.http.doors import AgentsDoor, PeopleDoor, is_agents

NONE: frozenset[bytes] = frozenset()
GRANT = frozenset({b"muster-grant"})


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/api/v1/agents/hello", NONE),
        ("GET", "/api/v1/agents/n0/orders", NONE),
        ("GET", f"/api/v1/snapshots/{'a' * 64}/archive", NONE),
        ("GET", f"/api/v1/snapshots/{'a' * 64}", NONE),
        ("GET", f"/api/v1/snapshots/{'a' * 64}/files/src/a.py", NONE),
        ("GET", "/api/v1/data/store/x", GRANT),
        ("PUT", "/api/v1/data/store/x", GRANT),
    ],
)
def test_agents_are_let_through(method: str, path: str, headers: frozenset[bytes]) -> None:
    assert is_agents(method, path, headers)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/api/v1/runs", NONE), ("POST", "/api/v1/runs", NONE), ("GET", "/api/v1/health", NONE),
        ("GET", "/api/v1/docs", NONE), ("POST", "/api/v1/join", NONE), ("GET", "/api/v1/data/store/x", NONE),
        ("GET", "/api/v1/data/store/x", GRANT | {b"authorization"}), ("POST", "/api/v1/shutdown", NONE),
        ("PUT", f"/api/v1/snapshots/{'a' * 64}", NONE), ("GET", "/api/v1/snapshots/../runs/archive", NONE),
        ("GET", "/api/v1/agents", NONE), ("GET", "//api/v1/agents/n0/orders", NONE), ("GET", "/", NONE),
        ("DELETE", f"/api/v1/snapshots/{'a' * 64}/archive", NONE),
    ],
)  # fmt: skip
def test_people_are_not(method: str, path: str, headers: frozenset[bytes]) -> None:
    assert not is_agents(method, path, headers)


@pytest.mark.parametrize("path", ["serving", "serving/routes", "data"])
def test_a_run_speaks_of_itself_there_with_its_own_token_alone(path: str) -> None:
    assert is_agents("GET", f"/api/v1/runs/r1/{path}", NONE, of_run=True)
    assert not is_agents("GET", f"/api/v1/runs/r1/{path}", NONE)
    assert not is_agents("DELETE", f"/api/v1/runs/r1/{path}", NONE, of_run=True)
    for other in ("/api/v1/runs/r1", "/api/v1/runs", f"/api/v1/runs/r1/{path}/x", f"/api/v1/runs/a/../b/{path}"):
        assert not is_agents("GET", other, NONE, of_run=True)


def test_the_owners_token_opens_nothing_there(server: Server) -> None:
    server.app = AgentsDoor(server.app)
    for path in ("/runs", "/health", "/people", "/audit", "/openapi.json", "/agents/../runs", "/runs/r1/serving"):
        status, answer = server.call("GET", path)
        assert (status, answer["error"]["code"]) == (404, "not_found"), path
    assert server.call("POST", "/agents/hello", {})[0] == 422


def test_the_port_of_a_team_takes_no_agents_where_these_have_one(server: Server) -> None:
    elsewhere = False
    server.app = PeopleDoor(server.app, lambda: elsewhere)
    assert server.call("POST", "/agents/hello", {})[0] == 422
    elsewhere = True
    for method, path in (("POST", "/agents/hello"), ("GET", "/agents/two-0/orders"), ("PUT", "/agents/two-0/files")):
        status, answer = server.call(method, path, {})
        assert status == 404 and "a port of their own" in answer["error"]["message"]
    assert server.call("GET", "/runs")[0] == 200
