"""What ranks log becomes rows, each once; nothing that a script writes can break a view."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.server.conftest import Server

from muster.server.database import records
from muster.server.runs import ingest
from muster.server.runs.submission import submit
from muster.wire.codec import from_json
from muster.wire.node.agents import Chunk
from muster.wire.runs import Progress, RunView, Submission


def started(server: Server) -> str:
    spec = {"command": "python train.py", "compute": "two"}
    run_id = server.write(lambda t: submit(server.context, t, Submission("k", spec))).id
    server.write(lambda t: records.RUN.set(t, run_id, attempt=1))
    return run_id


def log(server: Server, run_id: str, rank: int, *items: Any, attempt: int = 1) -> None:
    stream = f"events/rank_{rank}.jsonl"
    data = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    offset = server.context.files.streams.length(run_id, attempt, stream)
    server.context.files.streams.append([Chunk(run_id, attempt, stream, offset, data)])
    server.write(lambda t: ingest.parse_events(server.context, t, run_id, attempt, stream))


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
