"""Calls that log become the lines that the in-run API writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.agent.mlflow import events
from muster.server.runs import logged
from muster.wire.runs import MetricPoint


def test_a_batch_is_a_line_for_each_of_its_parts() -> None:
    body: dict[str, Any] = {
        "run_id": "r",
        "metrics": [{"key": "loss", "value": 0.5, "timestamp": "1700000000123", "step": "7"}],
        "params": [{"key": "lr", "value": "0.1"}],
        "tags": [{"key": "mlflow.user", "value": "me"}],
    }
    found = events.of_call("runs/log-batch", body, 5.0)
    assert found == [
        {"kind": "metric", "type": "scalar", "name": "loss", "value": 0.5, "step": 7, "at": 1700000000.123},
        {"kind": "param", "name": "lr", "value": "0.1", "at": 5.0},
        {"kind": "tag", "name": "mlflow.user", "value": "me", "at": 5.0},
    ]


@pytest.mark.parametrize(("given", "kept"), [("NaN", "NaN"), ("-Infinity", "-Infinity"), ("1.5", 1.5), (2, 2.0)])
def test_numbers_that_json_lacks_are_texts(given: Any, kept: Any) -> None:
    (event,) = events.of_call("runs/log-metric", {"key": "m", "value": given}, 1.0) or ()
    assert event["value"] == kept
    point = logged.read_line(json.dumps(event).encode(), 1, "rank_0")
    assert isinstance(point, MetricPoint) and point.value == kept


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("runs/log-metric", {"value": 1}),
        ("runs/log-metric", {"key": "m", "value": "many"}),
        ("runs/log-metric", {"key": "m", "value": 1, "step": "x"}),
        ("runs/log-metric", {"key": "m" * 251, "value": 1}),
        ("runs/log-batch", {"metrics": {"a": 1}}),
        ("runs/log-batch", {"params": [{"key": "p"}] * 101}),
    ],
)
def test_what_a_tracking_server_refuses_is_refused_at_once(call: str, body: dict[str, Any]) -> None:
    with pytest.raises(events.Refused):
        events.of_call(call, body, 1.0)


def test_calls_that_log_nothing_are_not_taken() -> None:
    assert events.of_call("runs/search", {}, 1.0) is None
    assert events.names_a_model({"metrics": [{"key": "a", "model_id": "m-1"}]})
    assert not events.names_a_model({"key": "a", "value": 1})
