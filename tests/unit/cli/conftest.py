"""Run views as the server gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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
        "port": None,
    },
    "next": "Fix the script and run it again.",
    "lines": ["Traceback (most recent call last):", "ValueError: boom"],
}


def _rank(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "rank": number,
        "node": number,
        "role": "worker",
        "state": "ended",
        "pid": 100 + number,
        "started_at": NOW - 60,
        "ended_at": NOW - 48,
        "exit_code": 0,
        "signal": None,
        "log": f"user_logs/std_log_process_{number}.txt",
        **changes,
    }


def _run_view(**changes: Any) -> dict[str, Any]:
    view = {
        "id": "r1a2b3c4",
        "name": "brave-otter",
        "display_name": "resnet50",
        "experiment": "default",
        "status": "Completed",
        "reason": "",
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
        "attempts": [
            {
                "number": 1,
                "status": "Completed",
                "started_at": NOW - 60,
                "ended_at": NOW - 48,
                "nodes": [
                    {"rank": n, "name": f"node-{n}", "address": "127.0.0.1", "phase": "delivered"} for n in (0, 1)
                ],
                "ranks": [_rank(0), _rank(1)],
                "verdict": None,
            }
        ],
        "metrics": {"loss": 2.31054, "images_per_sec": 812.44},
        "progress": None,
        "files": [
            {"path": "outputs/model.pt", "size": 102_500_000},
            {"path": "user_logs/std_log_process_0.txt", "size": 20},
        ],
        "spec": {},
    }
    return {**view, **changes}


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
def run_view() -> Callable[..., dict[str, Any]]:
    """Makes the view of a completed run of two ranks, with changes."""
    return _run_view
