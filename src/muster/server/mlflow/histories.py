"""The history of a metric, point by point."""

from __future__ import annotations

from sqlalchemy import Connection

from muster.server.mlflow import run_views
from muster.server.mlflow.protocol import Answer, Call, page_of, with_token
from muster.server.tracking.reading import read_series, series_rows
from muster.wire.codec import Json

_MOST = 25_000
_INTERVAL_POINTS = 320


def get(connection: Connection, call: Call) -> Answer:
    """Every point of one metric of a run, from all ranks."""
    row = run_views.find(connection, call.args.text("run_id", "run_uuid"))
    found = _points(connection, row.id, call.args.text("metric_key"), None)
    page, token = page_of(found, call.args, _MOST)
    return with_token({"metrics": list(page)}, token)


def bulk(connection: Connection, call: Call) -> Answer:
    """One metric of several runs."""
    key = call.args.text("metric_key")
    most = call.args.whole("max_results", _MOST)
    found: list[Json] = []
    for run_id in call.args.texts("run_id") or call.args.texts("run_ids"):
        points = _points(connection, run_views.find(connection, run_id).id, key, None)
        found += [{**point, "run_id": run_id} for point in points]
    return {"metrics": found[:most]}


def interval(connection: Connection, call: Call) -> Answer:
    """The same, thinned out for charts, and optionally only some steps."""
    key = call.args.text("metric_key")
    most = max(10, call.args.whole("max_results", _INTERVAL_POINTS))
    begin, end = (call.args.json(name) for name in ("start_step", "end_step"))
    found: list[Json] = []
    for run_id in call.args.texts("run_ids"):
        bounded = begin not in (None, "") and end not in (None, "")
        points = _points(connection, run_views.find(connection, run_id).id, key, None if bounded else most)
        if bounded:
            steps = call.args.whole("start_step"), call.args.whole("end_step")
            points = [point for point in points if steps[0] <= int(str(point["step"])) <= steps[1]]
        found += [{**point, "run_id": run_id} for point in points]
    return {"metrics": found}


def _points(connection: Connection, run_id: str, key: str, most: int | None) -> list[Answer]:
    rows = [row for row in series_rows(connection, run_id, key) if row.type == "scalar"]
    found = [
        (order, {"key": key, "value": value, "timestamp": int(at * 1000), "step": int(step or 0)})
        for _, points in read_series(connection, run_id, rows, most)
        for order, value, step, at in zip(points.orders, points.values, points.steps, points.at, strict=True)
        if isinstance(value, int | float | str)
    ]
    # In the order of arrival, over all ranks and attempts.
    return [dict(point) for _, point in sorted(found, key=lambda item: item[0])]
