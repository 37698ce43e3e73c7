"""Run views out of the JSON that the server gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from muster.wire.codec import from_json
from muster.wire.runs import RunView

NOW = 1_800_000_000.0

VERDICT = {
    "code": "exception",
    "rank": 1,
    "node": "node-1",
    "message": "rank 1 on node-1: ValueError: boom",
    "evidence": {
        "ranks": [
            {"rank": 1, "node": "node-1", "exit_code": 1, "signal": None, "expected": False},
            {"rank": 0, "node": "node-0", "exit_code": None, "signal": 9, "expected": True},
        ],
        "stop_reason": "rank_failed",
    },
    "action": "",
    "next": "Fix the script and run it again.",
    "lines": ["Traceback (most recent call last):", "ValueError: boom"],
}


def _rank(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "rank": number,
        "node": f"node-{number}",
        "role": "worker",
        "state": "ended",
        "pid": 100 + number,
        "started_at": NOW - 60,
        "ended_at": NOW - 48,
        "exit_code": 0,
        "signal": None,
        "expected": False,
        "log": f"user_logs/std_log_process_{number}.txt",
        **changes,
    }


def _attempt(**changes: Any) -> dict[str, Any]:
    return {
        "number": 1,
        "status": "Completed",
        "created_at": NOW - 65,
        "started_at": NOW - 60,
        "ended_at": NOW - 48,
        "resumed_from": None,
        "nodes": [
            {"rank": n, "name": f"node-{n}", "address": "127.0.0.1", "phase": "delivered", "gpus": []} for n in (0, 1)
        ],
        "ranks": [_rank(0), _rank(1)],
        "verdict": None,
        **changes,
    }


def _run_view(**changes: Any) -> RunView:
    view = {
        "id": "r1a2b3c4",
        "name": "brave-otter",
        "display_name": "resnet50",
        "experiment": "default",
        "status": "Completed",
        "reason": "",
        "starts_at": None,
        "created_at": NOW - 65,
        "queued_at": NOW - 65,
        "started_at": NOW - 60,
        "ended_at": NOW - 48,
        "submitted_by": "ada",
        "compute": "local",
        "tags": {"team": "vision"},
        "description": None,
        "num_nodes": 2,
        "num_ranks": 2,
        "notices": [],
        "verdict": None,
        "attempts": [_attempt()],
        "checkpoints": [],
        "retry_at": None,
        "excluded_nodes": [],
        "metrics": {"loss": 2.31054, "images_per_sec": 812.44},
        "progress": None,
        "files": [
            {"path": "outputs/model.pt", "size": 102_500_000},
            {"path": "user_logs/std_log_process_0.txt", "size": 20},
        ],
        "environment": None,
        "spec": {},
    }
    return from_json(RunView, {**view, **changes})


@pytest.fixture
def now() -> float:
    return NOW


@pytest.fixture
def verdict() -> dict[str, Any]:
    return dict(VERDICT)


@pytest.fixture
def rank_view() -> Callable[..., dict[str, Any]]:
    return _rank


@pytest.fixture
def attempt_view() -> Callable[..., dict[str, Any]]:
    return _attempt


@pytest.fixture
def run_view() -> Callable[..., RunView]:
    """Makes the view of a completed run of two ranks, with changes."""
    return _run_view
