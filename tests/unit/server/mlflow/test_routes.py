"""MLflow's endpoints as its clients meet them: codes that they know, never a 500, and who may call what."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.server.conftest import Server
from tests.unit.server.nodes.test_tokens import Node

from muster.server.mlflow.table import CALLS, READS
from muster.server.people import run_tokens


def call(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    sent = b"" if body is None else json.dumps(body).encode()
    return server.call_bytes(method, f"/../2.0/mlflow/{path}", sent, **headers)


@pytest.fixture(autouse=True)
def plain_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the tests writes /api/v1 before each path; these lie elsewhere."""
    whole = Server._call

    async def _call(self: Server, method: str, path: str, body: bytes, more: dict[str, str]) -> tuple[int, bytes]:
        return await whole(self, method, path.replace("/api/v1/../", "/api/"), body, more)

    monkeypatch.setattr(Server, "_call", _call)


def made(server: Server, **fields: Any) -> str:
    _, answer = call(server, "POST", "runs/create", {"experiment_id": "0", **fields})
    return str(answer["run"]["info"]["run_id"])


def test_unknown_things_have_codes_that_clients_know(server: Server) -> None:
    status, answer = call(server, "GET", "experiments/get-by-name?experiment_name=x")
    assert (status, answer["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert call(server, "GET", "runs/get?run_id=x")[0] == 404
    assert call(server, "POST", "made/up", {})[1]["error_code"] == "ENDPOINT_NOT_FOUND"
    assert server.call("GET", "/../3.0/mlflow/server-info")[0] == 404


BODIES = ({}, {"run_id": ["x"], "name": {"a": 1}, "experiment_id": "9" * 30, "version": "9" * 30, "filter": "~"})


def test_no_endpoint_fails_inside(server: Server) -> None:
    for method, path in (*READS, *CALLS):
        for body in BODIES:
            status, answer = call(server, method, path.replace("{model_id}", "m-1").replace("{tag_key}", "t"), body)
            assert status < 500 and (status == 200 or answer["error_code"]), (method, path, answer)


def test_a_body_that_is_no_object_is_refused(server: Server) -> None:
    for data in (b"[1]", b"{", b"\xff\xfe", b"[" * 100_000):
        status, answer = server.call_bytes("POST", "/../2.0/mlflow/runs/create", data)
        assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


def test_metrics_are_found_by_search_and_in_musters_own_views(server: Server) -> None:
    good, bad = made(server, run_name="good"), made(server, run_name="bad")
    for run, value in ((good, 0.1), (bad, "NaN")):
        metrics = [{"key": "loss", "value": value, "timestamp": 1000, "step": "3"}]
        batch = {"run_id": run, "metrics": metrics, "params": [{"key": "lr", "value": "1"}]}
        assert call(server, "POST", "runs/log-batch", batch) == (200, {})
    body = {"experiment_ids": ["0"], "filter": "metrics.loss < 0.5 and params.lr = '1'"}
    assert [run["info"]["run_name"] for run in call(server, "POST", "runs/search", body)[1]["runs"]] == ["good"]
    _, listed = server.call("GET", "/summaries?metric=loss")
    assert [run["display_name"] for run in listed] == ["good", "bad"]
    assert listed[0]["params"] == {"lr": "1"}


def test_a_run_of_a_client_ends_when_it_says_so(server: Server) -> None:
    run = made(server)
    assert server.call("GET", f"/runs/{run}")[1]["status"] == "NotStarted"
    call(server, "POST", "runs/update", {"run_id": run, "status": "FAILED", "end_time": 2000})
    assert server.call("GET", f"/runs/{run}")[1]["status"] == "Failed"
    assert server.call("POST", f"/runs/{run}/retry")[0] == 409


def test_artifacts_stay_below_their_run(server: Server) -> None:
    run = made(server)
    address = f"/../2.0/mlflow-artifacts/artifacts/0/{run}/artifacts"
    assert server.status("PUT", f"{address}/a/b.txt", b"hello") == 200
    assert server.fetch(f"{address}/a/b.txt", {}) == (200, b"hello")
    for path in (f"{address}/../x", f"{address}/a/../../x", "/../2.0/mlflow-artifacts/artifacts/x", f"{address}/"):
        assert server.status("PUT", path, b"x") in (400, 404), path
    assert server.status("GET", f"{address}/none") == 404


def test_a_reader_may_search_and_not_write_and_an_agent_nothing(server: Server) -> None:
    made(server)
    people = server.context.tokens.people
    server.context.database.submit(lambda t: people.add(t, "a-reader", "reader", "root")).result()
    tokens = {role: server.context.tokens.create(role, f"a-{role}") for role in ("reader", "agent")}
    reader = {"authorization": f"Bearer {tokens['reader']}"}
    assert call(server, "POST", "runs/search", {"experiment_ids": ["0"]}, **reader)[0] == 200
    assert call(server, "POST", "runs/create", {}, **reader)[0] == 403
    assert call(server, "POST", "runs/search", {"experiment_ids": ["0"]}, **reader, muster_run="any")[0] == 403
    agent = {"authorization": f"Bearer {tokens['agent']}"}
    assert call(server, "POST", "runs/search", {"experiment_ids": ["0"]}, **agent)[0] == 403
    other = {**agent, "muster_run": "someone-elses", "muster_attempt": "1"}
    assert call(server, "POST", "runs/search", {"experiment_ids": ["0"]}, **other)[0] == 403


def test_a_runs_token_reads_and_changes_its_own_run_alone(server: Server) -> None:
    node = Node(server)
    shown = {"authorization": f"Bearer {run_tokens.make(server.context, node.run, 1)}"}
    mine = {**shown, "muster_run": node.run, "muster_attempt": "1"}
    other = server.call("POST", "/runs", {"key": "o", "spec": {"command": "true", "compute": "two"}})[1]["id"]
    assert call(server, "GET", f"runs/get?run_id={node.run}", None, **mine)[0] == 200
    assert call(server, "POST", "runs/search", {"experiment_ids": ["0"]}, **mine)[0] == 200
    tag = {"key": "a", "value": "b"}
    assert call(server, "POST", "runs/set-tag", {"run_id": node.run, **tag}, **mine)[0] == 200
    status, child = call(server, "POST", "runs/create", {"experiment_id": "0"}, **mine)
    inner = child["run"]["info"]["run_id"]
    assert status == 200 and call(server, "POST", "runs/set-tag", {"run_id": inner, **tag}, **mine)[0] == 200
    for path, run in (
        ("runs/set-tag", other),
        ("runs/log-metric", other),
        ("runs/delete", other),
        ("runs/delete", node.run),
    ):
        assert call(server, "POST", path, {"run_id": run, **tag, "timestamp": 1}, **mine)[0] == 403, path
    for wrong in ({"muster_run": other}, {"muster_attempt": "x"}, {"muster_attempt": "9" * 5000}, {"muster_run": ""}):
        assert call(server, "POST", "runs/search", {"experiment_ids": ["0"]}, **{**mine, **wrong})[0] == 403, wrong
    assert call(server, "POST", "runs/search", {"experiment_ids": ["0"]}, **shown)[0] == 403
