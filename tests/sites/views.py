"""Whole answers of a server, for tests that care about a few of their fields."""

from __future__ import annotations

import json
from typing import Any

from muster.wire.codec import from_json, to_json
from muster.wire.runs import RunView
from muster.wire.stream import StreamEvent

_RUN = {
    "id": "r-1", "name": None, "display_name": None, "experiment": "e", "status": "Running", "reason": "",
    "starts_at": None, "created_at": 0.0, "queued_at": 0.0, "started_at": 0.0, "ended_at": None, "submitted_by": "ada",
    "compute": "local", "tags": {}, "description": None, "num_nodes": 1, "num_ranks": 2, "notices": [],
    "verdict": None, "attempts": [], "checkpoints": [], "retry_at": None, "excluded_nodes": [], "metrics": {},
    "progress": None, "files": [], "environment": None, "spec": {},
}  # fmt: skip
_CLUSTER = {
    "name": "local", "engine": "local", "state": "ready", "options": {}, "created_at": 0.0, "min_nodes": 0,
    "max_nodes": 1, "lent": False, "idle_seconds_before_scaledown": 1800.0, "vm_priority": "dedicated",
    "price_per_hour": None, "size": None, "node": None, "queued": 0, "nodes": [],
}  # fmt: skip
_POINT = {"value": 0.0, "step": None, "rank": 0, "source": "rank_0", "type": "scalar", "at": 0.0, "attempt": 1}
_MODEL = {
    "version": 1, "run_id": None, "path": "outputs", "description": None, "tags": {}, "properties": {},
    "created_at": 0.0,
}  # fmt: skip
_DATASTORE = {
    "kind": "local", "options": {}, "credential": "none", "location": "", "description": None, "created_at": 0.0,
    "default": False,
}  # fmt: skip


def run_json(**changes: Any) -> dict[str, Any]:
    return {**_RUN, **changes}


def run_view(**changes: Any) -> RunView:
    return from_json(RunView, run_json(**changes))


def cluster_json(**changes: Any) -> dict[str, Any]:
    return {**_CLUSTER, **changes}


def point_json(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, **_POINT, **changes}


def file_json(path: str, size: int = 1) -> dict[str, Any]:
    return {"path": path, "size": size, "sha256": None, "attempt": 1}


def model_json(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, **_MODEL, **changes}


def datastore_json(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, **_DATASTORE, **changes}


def sse(cursor: str, event: StreamEvent) -> bytes:
    """An event as a server sends it."""
    return sse_text(cursor, event.kind, to_json(event))


def sse_text(cursor: str, kind: str, data: Any) -> bytes:
    return f"id: {cursor}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()
