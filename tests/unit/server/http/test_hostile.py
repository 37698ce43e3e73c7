"""Requests that attack: whatever is sent, the answer is no failure of the server, and nothing is broken afterwards."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.unit.server.conftest import Server

from muster.server.runs.submission import submit
from muster.wire.runs import Submission

SPEC = {"command": "python train.py", "compute": "two"}
HUGE = 10**30


def started(server: Server) -> str:
    return server.write(lambda t: submit(server.context, t, Submission("k", SPEC))).id


def cursor(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


@pytest.mark.parametrize("bad", ["a\ud800", "\udfff", "a\0b"], ids=ascii)
def test_text_that_is_none_is_refused_wherever_it_is_sent(server: Server, bad: str) -> None:
    run = started(server)
    attacks: list[tuple[str, str, Any]] = [
        ("POST", "/runs", {"key": bad, "spec": SPEC}),
        ("POST", "/runs", {"key": "k2", "spec": {**SPEC, "display_name": bad}}),
        ("POST", "/runs", {"key": "k3", "spec": SPEC, "submitted_by": bad}),
        ("PATCH", f"/runs/{run}", {"tags": {"a": bad}}),
        ("PATCH", f"/runs/{run}", {"tags": {bad: "a"}}),
        ("PATCH", f"/runs/{run}", {"display_name": bad}),
        ("PATCH", f"/runs/{run}", {"description": bad}),
        ("POST", f"/runs/{run}/metrics", {"points": [{"name": bad, "value": 1.0, "at": 1.0}]}),
        ("POST", "/models", {"name": "m", "path": "outputs", "tags": {"a": bad}}),
        ("PUT", "/secrets/NAME", {"value": f"long enough {bad}"}),
    ]
    for method, path, body in attacks:
        assert server.call(method, path, body)[0] in (400, 422), (path, body)
    for path in ("/runs", f"/runs/{run}", f"/runs/{run}/metrics", "/models"):
        assert server.call("GET", path)[0] == 200, path


def test_what_an_earlier_version_stored_breaks_no_view(server: Server) -> None:
    run = started(server)
    server.write(lambda t: t.execute(text("UPDATE runs SET tags = :tags"), {"tags": r'{"a\ud800": "\udc00"}'}))
    for path in ("/runs", f"/runs/{run}"):
        assert server.call("GET", path)[0] == 200
    assert server.call("PATCH", f"/runs/{run}", {"tags": {"b": "c"}})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/runs", {"key": "h", "spec": {**SPEC, "limits": {"timeout": HUGE}}}),
        ("POST", "/runs", {"key": "h", "spec": {**SPEC, "inputs": {"n": HUGE}}}),
        ("GET", f"/models/m?version={HUGE}", None),
        ("GET", f"/agents/n0/manifest?run=r&attempt={HUGE}&name=n", None),
        ("POST", "/agents/n0/grants", {"run": "r", "attempt": 2**63, "paths": {}}),
        ("POST", "/agents/n0/outputs", {"run": "r", "attempt": 2**63, "name": "o", "files": []}),
        ("POST", "/gc", {"older_than_s": 1e308, "dry_run": True, "keep_last": 2**63}),
        ("POST", "/grants", {"address": "muster://datastores/workspaceblobstore/paths/x", "lifetime_s": 1e308}),
    ],
    ids=str,
)
def test_numbers_beyond_64_bits_are_refused(server: Server, method: str, path: str, body: Any) -> None:
    assert server.call(method, path, body)[0] in (200, 201, 403, 404, 409, 422)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"spec":' * 50_000 + b"1" + b"}" * 50_000,
        b"\xff\xfe",
        b"",
        b"1e999",
    ],
    ids=lambda body: repr(body[:8]),
)
def test_deep_or_broken_json_is_refused(server: Server, body: bytes) -> None:
    for method, path in (("POST", "/runs"), ("POST", "/plan"), ("POST", "/assets"), ("POST", "/agents/hello")):
        assert server.call_bytes(method, path, body)[0] in (400, 413, 422), path


def test_a_spec_that_is_nested_deeply_is_refused(server: Server) -> None:
    deep: Any = "x"
    for _ in range(90):
        deep = [deep]
    status, answer = server.call("POST", "/runs", {"key": "d", "spec": {**SPEC, "inputs": {"a": deep}}})
    assert status == 422 and "levels deep" in answer["error"]["message"]


@pytest.mark.parametrize(
    "bad",
    [
        "x", "====", "\u00ff", cursor(1), cursor([]), cursor({}), cursor({"event": HUGE, "metric": 0, "logs": {}}),
        cursor({"event": -1, "metric": 0, "logs": {}}), cursor({"event": 0, "metric": 0, "logs": {"1/x": -5}}),
        cursor({"event": 1e400, "metric": 0, "logs": {}}), cursor({"event": 0, "metric": 0, "logs": {"1/x": HUGE}}),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
    ids=lambda bad: bad[:12],
)  # fmt: skip
def test_a_bad_cursor_is_refused(server: Server, bad: str) -> None:
    run = started(server)
    assert server.call("GET", f"/runs/{run}/stream?follow=0&cursor={bad}")[0] == 422


def test_the_documentation_page_loads_nothing_from_elsewhere(server: Server) -> None:
    page = server.text("/docs")
    assert "/api/v1/runs" in page
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", page)
    assert "<script" not in page


paths = st.sampled_from(
    ["/runs", "/plan", "/assets", "/datastores", "/grants", "/models", "/secrets/A", "/clusters", "/gc",
     "/agents/hello", "/agents/n0/grants", "/agents/n0/hashes", "/agents/n0/outputs", "/agents/n0/environment",
     "/snapshots/missing", f"/snapshots/{'0' * 64}", "/shutdown", "/environments"]
)  # fmt: skip
names = st.sampled_from(
    ["key", "spec", "name", "kind", "path", "files", "run", "attempt", "options", "address", "lifetime_s", "folder",
     "scope", "value", "node", "cluster", "agent", "protocol", "engine", "tags", "force", "dry_run", "older_than_s"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**60, 2**70) | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=2), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(method=st.sampled_from(["POST", "PUT", "PATCH"]), path=paths, body=st.dictionaries(names, values, max_size=6))
def test_no_body_makes_the_server_fail(server: Server, method: str, path: str, body: Any) -> None:
    assert server.call(method, path, body)[0] < 500
