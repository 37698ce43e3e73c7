"""What ranks log becomes rows, each once; nothing that a script writes can break a view."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select
from tests.unit.server.conftest import Server

from muster.server.database import records, tables
from muster.server.runs import ingest
from muster.server.runs.submission import submit
from muster.wire.codec import from_json
from muster.wire.node.agents import Chunk, encode
from muster.wire.runs import Progress, RunView, Submission


def started(server: Server) -> str:
    spec = {"command": "python train.py", "compute": "two"}
    run_id = server.write(lambda t: submit(server.context, t, Submission("k", spec))).id
    server.write(lambda t: records.RUN.set(t, run_id, attempt=1))
    return run_id


def log(server: Server, run_id: str, rank: int, *items: Any, attempt: int = 1) -> None:
    log_bytes(server, run_id, b"".join(json.dumps(item).encode() + b"\n" for item in items), rank, attempt)


def log_bytes(server: Server, run_id: str, data: bytes, rank: int = 0, attempt: int = 1) -> None:
    stream = f"events/rank_{rank}.jsonl"
    offset = server.context.files.streams.length(run_id, attempt, stream)
    server.context.files.streams.append([Chunk(run_id, attempt, stream, offset, data)])
    server.write(lambda t: ingest.parse_events(server.context, t, run_id, attempt, stream))


def metric(name: str) -> dict[str, Any]:
    return {"kind": "metric", "name": name, "value": 1.0, "at": 1.0}


def names(server: Server, run_id: str) -> list[str]:
    query = select(tables.metrics.c.name).where(tables.metrics.c.run_id == run_id).order_by(tables.metrics.c.id)
    return server.context.database.read_now(lambda c: list(c.execute(query).scalars()))


def notes(server: Server, run_id: str) -> list[str]:
    query = select(tables.events.c.data).where(tables.events.c.run_id == run_id, tables.events.c.kind == "note")
    return server.context.database.read_now(lambda c: [data["text"] for data in c.execute(query).scalars()])


def placement(run_id: str) -> dict[str, Any]:
    where = {"run_id": run_id, "number": 1, "node_rank": 0, "cluster": "two", "node": "n0", "host": "h", "address": ""}
    return {
        **where,
        "cpus": 1,
        "gpus": [],
        "ranks": 1,
        "phase": "started",
        "lost": False,
        "ports": [],
        "leaving": False,
    }


def progress(done: Any, total: Any = 10) -> dict[str, Any]:
    return {"kind": "progress", "done": done, "total": total, "unit": "steps"}


def shown(server: Server, run_id: str) -> RunView:
    return from_json(RunView, server.call("GET", f"/runs/{run_id}")[1])


def test_the_slowest_rank_counts(server: Server) -> None:
    run_id = started(server)
    log(server, run_id, 1, progress(2))
    log(server, run_id, 0, progress(5), progress(9))
    assert shown(server, run_id).progress == Progress(2.0, 10.0, "steps", 1)
    log(server, run_id, 1, progress(10))
    assert shown(server, run_id).progress == Progress(9.0, 10.0, "steps", 0)


def test_a_further_attempt_starts_from_nothing(server: Server) -> None:
    run_id = started(server)
    log(server, run_id, 0, progress(8))
    log(server, run_id, 1, progress(3))
    log(server, run_id, 0, progress(1), attempt=2)
    assert shown(server, run_id).progress == Progress(1.0, 10.0, "steps", 0)
    log(server, run_id, 0, progress(9), attempt=1)
    assert shown(server, run_id).progress == Progress(1.0, 10.0, "steps", 0)


def test_what_is_no_number_is_no_progress(server: Server) -> None:
    run_id = started(server)
    log(server, run_id, 0, progress(4, float("nan")))
    for done in (float("nan"), float("inf"), "NaN", None, [1]):
        log(server, run_id, 0, progress(done))
    assert shown(server, run_id).progress == Progress(4.0, None, "steps", 0)


def test_numbers_that_json_lacks_are_texts(server: Server) -> None:
    run_id = started(server)
    values = {"nan": float("nan"), "list": [1.5, float("-inf")], "row": {"a": float("inf")}}
    log(server, run_id, 0, *({"kind": "metric", "name": name, "value": value} for name, value in values.items()))
    assert shown(server, run_id).metrics == {"nan": "NaN", "list": [1.5, "-Infinity"], "row": {"a": "Infinity"}}
    _, points = server.call("GET", f"/runs/{run_id}/metrics")
    assert {(point["rank"], point["source"], point["attempt"]) for point in points} == {(0, "rank_0", 1)}


def test_points_of_a_client_are_kept_beside_those_of_ranks(server: Server) -> None:
    run_id = started(server)
    report = {"name": "loss", "value": 0.5, "step": 3}
    assert server.call("POST", f"/runs/{run_id}/metrics", {"points": [report]}) == (204, None)
    _, (point,) = server.call("GET", f"/runs/{run_id}/metrics?name=loss")
    assert [point[key] for key in ("value", "step", "rank", "source", "type")] == [0.5, 3.0, None, "client", "scalar"]


HOSTILE = [
    {"kind": "metric", "name": "loss", "value": 1.0, "step": 10**400},
    {"kind": "metric", "name": "loss", "value": 10**400},
    {"kind": "metric", "name": "loss", "value": 1.0, "at": 10**400},
    {"kind": "progress", "done": 10**400, "total": 10},
    {"kind": "progress", "done": 1, "total": -(10**400)},
    {"kind": "model", "name": "m", "description": ["a", "list"]},
    {"kind": "model", "name": "m", "tags": [1, 2, 3]},
    {"kind": "model", "name": "m", "path": {"no": "path"}},
    {"kind": "tag", "name": "t", "value": {"a": {"b": []}}},
    {"kind": "progress", "done": 1, "unit": ["steps"]},
    {"kind": "metric", "name": "loss", "value": 1.0, "type": ["scalar"]},
]


@pytest.mark.parametrize("item", HOSTILE, ids=str)
def test_a_bad_event_is_dropped_with_a_note_and_the_rest_is_kept(server: Server, item: dict[str, Any]) -> None:
    run_id = started(server)
    log(server, run_id, 0, metric("before"), item, metric("after"))
    assert names(server, run_id) == ["before", "after"]
    said = notes(server, run_id)
    assert len(said) == 1 and "left out" in said[0] and "events/rank_0.jsonl" in said[0]
    log(server, run_id, 0, item, metric("later"))
    assert names(server, run_id) == ["before", "after", "later"]
    assert notes(server, run_id) == said, "said once"


def test_brackets_without_end_hold_nothing_up(server: Server) -> None:
    run_id = started(server)
    deep = {"kind": "metric", "name": "deep", "value": json.loads("[" * 60 + "1" + "]" * 60)}
    log_bytes(server, run_id, b"[" * 200_000 + b"\n" + b'{"a":' * 100_000 + b"\n")
    log(server, run_id, 0, deep, metric("after"))
    assert names(server, run_id) == ["after"]
    assert len(notes(server, run_id)) == 2
    assert server.call("GET", f"/runs/{run_id}/metrics")[0] == 200


def test_half_surrogate_pairs_harm_no_view(server: Server) -> None:
    run_id = started(server)
    log(
        server,
        run_id,
        0,
        {"kind": "tag", "name": "a\ud800", "value": "\udfff b\0"},
        metric("m\ud800"),
        {"kind": "metric", "name": "table", "value": {"\ud800": ["\udc00"]}},
        {"kind": "progress", "done": 1, "unit": "\ud800"},
        {"kind": "model", "name": "m\ud800", "description": "\ud800", "tags": {"\ud800": "\ud800"}, "path": "p\0"},
        {"kind": "tag", "name": "\ud83d\ude00", "value": "a whole pair stays"},
    )
    for path in ("/runs", f"/runs/{run_id}", f"/runs/{run_id}/metrics", "/models"):
        assert server.call("GET", path)[0] == 200, path
    assert server.call("GET", f"/runs/{run_id}")[1]["tags"]["\U0001f600"] == "a whole pair stays"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(min_value=2**60) | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ("name", "value", "step", "at", "type", "done", "total", "unit", "path", "description", "tags", "properties")
events = st.builds(
    lambda kind, fields: {"kind": kind, **fields},
    st.sampled_from(["metric", "tag", "progress", "model", "other"]),
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6),
)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(items=st.lists(events, max_size=4), rubbish=st.binary(max_size=40))
def test_whatever_a_rank_writes_its_stream_goes_on(server: Server, items: list[Any], rubbish: bytes) -> None:
    run_id = started(server)
    log_bytes(server, run_id, rubbish + b"\n")
    log(server, run_id, 0, *items, metric("end"))
    assert names(server, run_id)[-1] == "end"
    for path in (f"/runs/{run_id}", f"/runs/{run_id}/metrics", "/models"):
        assert server.call("GET", path)[0] == 200, path


@pytest.mark.parametrize(
    "name", ["events/\udcff.jsonl", f"events/{'x' * 300}.jsonl", "events/../../x", "events/rank_" + "9" * 40]
)
def test_names_that_a_rank_makes_up_hold_no_delivery_up(server: Server, name: str) -> None:
    run_id = started(server)
    server.write(lambda t: t.execute(insert(tables.placements).values(**placement(run_id))))
    line = json.dumps(metric("kept")).encode() + b"\n"
    frames = [Chunk(run_id, 1, name, 0, line), Chunk(run_id, 1, "events/rank_0.jsonl", 0, line)]
    status, answer = server.call_bytes("POST", "/agents/n0/deliveries", b"".join(encode(frames)))
    assert status == 200
    assert {(item[2], item[3]) for item in answer["lengths"]} == {(name, len(line)), ("events/rank_0.jsonl", len(line))}
    assert "kept" in names(server, run_id)
