"""Runs: find, search, log to them, and create them without submitting a job."""

from __future__ import annotations

import json
import secrets
import time

from sqlalchemy import insert, select

from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import RUN, RunRow, add_event
from muster.server.mlflow import experiments, filters, run_views
from muster.server.mlflow.protocol import INVALID, Answer, Args, Call, MlflowError, page_of, with_token
from muster.server.runs import logged
from muster.server.tracking.labels import load_tool_tags, set_params, set_tags
from muster.server.tracking.reading import read_series, series_rows
from muster.server.tracking.recording import add_points
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.runs import MetricPoint
from muster.wire.states import RunStatus
from muster.wire.stream import StateChanged
from muster.wire.tracking import PARENT_TAG

_KEY = "mlflow:"
"""The prefix of the key of a run that a client made, without a job or nodes."""
_ENDS: dict[str, RunStatus] = {"FINISHED": "Completed", "FAILED": "Failed", "KILLED": "Canceled"}
_MOST_IN_BATCH = 1000


def get(transaction: Transaction, call: Call) -> Answer:
    return {"run": run_views.one(transaction, _run_id(call.args)).view}


def search(transaction: Transaction, call: Call) -> Answer:
    args, runs = call.args, tables.runs
    names = [experiments.name_of(transaction, number) for number in args.texts("experiment_ids")]
    conditions = filters.parse(args.maybe("filter"))
    rows = transaction.execute(select(runs).where(runs.c.experiment.in_(names)).order_by(runs.c.seq.desc())).all()
    view = args.maybe("run_view_type") or "ACTIVE_ONLY"
    found = [
        run for run in run_views.load(transaction, rows) if view == "ALL" or run.is_deleted == (view == "DELETED_ONLY")
    ]
    found = filters.select(found, conditions, run_views.lookup)
    found = filters.order(found, args.texts("order_by"), run_views.lookup)
    page, token = page_of(found, args, 1000)
    return with_token({"runs": [run.view for run in page]}, token)


def create(transaction: Transaction, call: Call) -> Answer:
    """Create a run without a job: for a client outside of ranks, or for a child run of a rank."""
    args = call.args
    experiment = experiments.name_of(transaction, args.maybe("experiment_id") or "0")
    tags = args.pairs("tags")
    name = args.maybe("run_name") or tags.get("mlflow.runName")
    if call.run_id is not None:
        tags.setdefault(PARENT_TAG, call.run_id)
    tags.setdefault("mlflow.user", args.maybe("user_id") or call.user)
    started_at = args.whole("start_time", int(clock.now() * 1000)) / 1000
    run_id = add_run(transaction, experiment, name, call.user, started_at)
    set_tags(transaction, run_id, {**tags, **({"mlflow.runName": name} if name else {})})
    return {"run": run_views.one(transaction, run_id).view}


def add_run(
    transaction: Transaction, experiment: str, name: str | None, user: str, started_at: float, key: str | None = None
) -> str:
    """Add a run that Muster does not execute, under a unique key."""
    run_id = f"mlflow-{secrets.token_hex(8)}"
    row: dict[str, Json] = {
        "id": run_id, "key": _KEY + (key or run_id), "name": None, "display_name": name, "experiment": experiment,
        "status": states.NOT_STARTED, "created_at": started_at, "started_at": started_at,
        "spec": {"command": ["mlflow"]}, "submitted_by": user, "compute": "", "priority": 0, "num_nodes": 0,
        "num_ranks": 0, "ranks_per_node": 0, "attempt": 1, "tags": {}, "notices": [],
    }  # fmt: skip
    transaction.execute(insert(tables.runs), row)
    return run_id


def change(transaction: Transaction, call: Call) -> Answer:
    """Change a run's name, and the status of a run that a client made; only Muster sets the status of a job."""
    run_id = _run_id(call.args)
    row = run_views.find(transaction, run_id)
    if name := call.args.maybe("run_name"):
        RUN.set(transaction, run_id, display_name=name)
        set_tags(transaction, run_id, {"mlflow.runName": name})
    status = call.args.maybe("status")
    if status and is_made_by_client(row):
        ended = call.args.whole("end_time", int(clock.now() * 1000)) / 1000
        end_run(transaction, run_id, status, ended)
    return {"run_info": run_views.one(transaction, run_id).info}


def is_made_by_client(row: RunRow) -> bool:
    return str(row.key).startswith(_KEY)


def end_run(transaction: Transaction, run_id: str, status: str, ended_at: float) -> None:
    """End a run that a client made, or make it active again."""
    mine = _ENDS.get(status, states.NOT_STARTED)
    ended = ended_at if mine in states.TERMINAL else None
    RUN.set(transaction, run_id, status=mine, ended_at=ended)
    if ended is not None:
        add_event(transaction, run_id, StateChanged(mine, ended))


def delete(transaction: Transaction, call: Call) -> Answer:
    run_id = run_views.find(transaction, _run_id(call.args)).id
    set_tags(transaction, run_id, {run_views.DELETED: str(clock.now())})
    return {}


def restore(transaction: Transaction, call: Call) -> Answer:
    run_id = run_views.find(transaction, _run_id(call.args)).id
    set_tags(transaction, run_id, {run_views.DELETED: None})
    return {}


# Logging, by clients outside of ranks


def log_metric(transaction: Transaction, call: Call) -> Answer:
    row = run_views.find(transaction, _run_id(call.args))
    _log_metrics(transaction, call, row, [call.args])
    return {}


def log_param(transaction: Transaction, call: Call) -> Answer:
    row = run_views.find(transaction, _run_id(call.args))
    set_params(transaction, row.id, row.attempt, {call.args.key("key"): call.args.maybe("value") or ""})
    return {}


def set_tag(transaction: Transaction, call: Call) -> Answer:
    row = run_views.find(transaction, _run_id(call.args))
    set_tags(transaction, row.id, {call.args.key("key"): call.args.maybe("value") or ""})
    return {}


def delete_tag(transaction: Transaction, call: Call) -> Answer:
    run = run_views.one(transaction, _run_id(call.args))
    key = call.args.key("key")
    if key not in run.tags:
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"No tag with name: {key} in run with id {run.row.id}")
    set_tags(transaction, run.row.id, {key: None})
    return {}


def log_batch(transaction: Transaction, call: Call) -> Answer:
    row = run_views.find(transaction, _run_id(call.args))
    metrics = call.args.each("metrics")
    params, tags = call.args.pairs("params"), call.args.pairs("tags")
    if len(metrics) + len(params) + len(tags) > _MOST_IN_BATCH:
        raise MlflowError(INVALID, f"A batch has at most {_MOST_IN_BATCH} metrics, params and tags")
    _log_metrics(transaction, call, row, metrics)
    set_params(transaction, row.id, row.attempt, params)
    set_tags(transaction, row.id, tags)
    return {}


def _log_metrics(transaction: Transaction, call: Call, row: RunRow, metrics: list[Args]) -> None:
    points = [
        MetricPoint(
            item.key("key"),
            number(item),
            float(item.whole("step")),
            None,
            "client",
            "scalar",
            item.whole("timestamp", int(time.time() * 1000)) / 1000,
            row.attempt,
        )
        for item in _new(transaction, row.id, metrics)
    ]
    add_points(transaction, row.id, points)
    run_id = row.id
    transaction.after_commit.append(lambda: call.context.hub.changed(runs=[run_id]))


def _new(transaction: Transaction, run_id: str, metrics: list[Args]) -> list[Args]:
    """The metrics without known points: MLflow 3 logs the points of a model's step again to link them to the model."""
    linked = {item.key("key") for item in metrics if item.maybe("model_id")}
    known = {
        (key, value, int(step or 0), int(at * 1000))
        for key in linked
        for _, points in read_series(
            transaction.connection, run_id, series_rows(transaction.connection, run_id, key), None
        )
        for value, step, at in zip(points.values, points.steps, points.at, strict=True)
        if isinstance(value, int | float | str)
    }
    return [
        item
        for item in metrics
        if not item.maybe("model_id")
        or (item.key("key"), number(item), item.whole("step"), item.whole("timestamp")) not in known
    ]


def number(metric: Args) -> float | str:
    """A metric's value; NaN and infinity, which JSON lacks, come as text and stay text."""
    given = metric.json("value")
    try:
        found = logged.value(float(given))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise MlflowError(INVALID, f"Metric value {given!r:.60} is not a number") from None
    assert isinstance(found, float | str)
    return found


# Datasets and models that a run used or made


def log_inputs(transaction: Transaction, call: Call) -> Answer:
    row = run_views.find(transaction, _run_id(call.args))
    known = json.loads(load_tool_tags(transaction.connection, [row.id]).get(row.id, {}).get(run_views.INPUTS, "{}"))
    for part in ("datasets", "models"):
        known[part] = [*known.get(part, []), *(call.args.json(part) or [])]  # type: ignore[misc]
    set_tags(transaction, row.id, {run_views.INPUTS: json.dumps(known)})
    return {}


def log_outputs(transaction: Transaction, call: Call) -> Answer:
    row = run_views.find(transaction, _run_id(call.args))
    known = json.loads(load_tool_tags(transaction.connection, [row.id]).get(row.id, {}).get(run_views.OUTPUTS, "[]"))
    known += call.args.json("models") or []
    set_tags(transaction, row.id, {run_views.OUTPUTS: json.dumps(known)})
    return {}


def log_model(transaction: Transaction, call: Call) -> Answer:
    """Keep MLflow 2's description of a model in a tag."""
    row = run_views.find(transaction, _run_id(call.args))
    tools = load_tool_tags(transaction.connection, [row.id]).get(row.id, {})
    history = json.loads(tools.get("mlflow.log-model.history", "[]"))
    try:
        history.append(json.loads(call.args.text("model_json")))
    except ValueError:
        raise MlflowError(INVALID, "'model_json' must be JSON") from None
    set_tags(transaction, row.id, {"mlflow.log-model.history": json.dumps(history)})
    return {}


def _run_id(args: Args) -> str:
    return args.text("run_id", "run_uuid")
