"""Logged models of MLflow 3: a model that a run wrote, with its own id even before it is registered."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import Row, insert, select, update
from sqlalchemy import delete as delete_rows

from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.mlflow import experiments, filters, run_views
from muster.server.mlflow.protocol import (
    ABSENT,
    Answer,
    Call,
    MlflowError,
    milliseconds,
    page_of,
    pairs,
    with_token,
)
from muster.wire.codec import Json

_TABLE = tables.logged_models
_STATUSES = ("LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED")
FOLDER = "models"
"""The folder of logged models' files in their run."""


def create(transaction: Transaction, call: Call) -> Answer:
    args = call.args
    experiment = experiments.name_of(transaction, args.maybe("experiment_id") or "0")
    run_id = args.maybe("source_run_id") or call.run_id
    if run_id is None:
        raise MlflowError("INVALID_PARAMETER_VALUE", "A logged model belongs to a run here: give source_run_id")
    model_id, now = f"m-{secrets.token_hex(16)}", clock.now()
    row = {
        "id": model_id, "experiment": run_views.find(transaction, run_id).experiment or experiment, "run_id": run_id,
        "name": (args.maybe("name") or model_id).removeprefix("./"), "type": args.maybe("model_type") or "",
        "status": _STATUSES[0],
        "params": args.pairs("params"), "tags": args.pairs("tags"), "created_at": now, "updated_at": now,
    }  # fmt: skip
    transaction.execute(insert(_TABLE), row)
    return {"model": _view(transaction, find(transaction, model_id))}


def get(transaction: Transaction, call: Call) -> Answer:
    return {"model": _view(transaction, find(transaction, call.args.text("model_id")))}


def finalize(transaction: Transaction, call: Call) -> Answer:
    given = call.args.maybe("status") or _STATUSES[1]
    numbered = dict(zip(("1", "2", "3"), _STATUSES, strict=True))
    _change(transaction, call.args.text("model_id"), status=numbered.get(given, given))
    return get(transaction, call)


def delete(transaction: Transaction, call: Call) -> Answer:
    row = find(transaction, call.args.text("model_id"))
    transaction.execute(delete_rows(_TABLE).where(_TABLE.c.id == row.id))
    return {}


def log_params(transaction: Transaction, call: Call) -> Answer:
    row = find(transaction, call.args.text("model_id"))
    _change(transaction, row.id, params={**row.params, **call.args.pairs("params")})
    return {}


def set_tags(transaction: Transaction, call: Call) -> Answer:
    row = find(transaction, call.args.text("model_id"))
    _change(transaction, row.id, tags={**row.tags, **call.args.pairs("tags")})
    return get(transaction, call)


def delete_tag(transaction: Transaction, call: Call) -> Answer:
    row = find(transaction, call.args.text("model_id"))
    key = call.args.text("tag_key")
    _change(transaction, row.id, tags={name: value for name, value in row.tags.items() if name != key})
    return {}


def search(transaction: Transaction, call: Call) -> Answer:
    args = call.args
    names = [experiments.name_of(transaction, number) for number in args.texts("experiment_ids")]
    query = select(_TABLE).where(_TABLE.c.experiment.in_(names)).order_by(_TABLE.c.created_at.desc(), _TABLE.c.id)
    found = filters.select(transaction.execute(query).all(), filters.parse(args.maybe("filter")), _lookup)
    for item in reversed(args.each("order_by")):
        direction = "DESC" if item.json("ascending") is False else "ASC"
        found = filters.order(found, [f"{item.text('field_name')} {direction}"], _lookup)
    page, token = page_of(found, args, 100)
    return with_token({"models": [_view(transaction, row) for row in page]}, token)


def find(transaction: Transaction, model_id: str) -> Row[Any]:
    row = transaction.execute(select(_TABLE).where(_TABLE.c.id == model_id)).first()
    if row is None:
        raise MlflowError(ABSENT, f"Logged model with ID '{model_id}' not found.")
    return row  # type: ignore[no-any-return]


def artifact_uri(transaction: Transaction, row: Row[Any]) -> str:
    number = experiments.number_of(transaction, row.experiment)
    return run_views.artifact_uri(number, row.run_id, f"{FOLDER}/{row.id}")


def _change(transaction: Transaction, model_id: str, **columns: Any) -> None:
    find(transaction, model_id)
    transaction.execute(update(_TABLE).where(_TABLE.c.id == model_id).values(updated_at=clock.now(), **columns))


def _view(transaction: Transaction, row: Row[Any]) -> Answer:
    info: Json = {
        "model_id": row.id,
        "experiment_id": experiments.number_of(transaction, row.experiment),
        "name": row.name,
        "creation_timestamp_ms": milliseconds(row.created_at),
        "last_updated_timestamp_ms": milliseconds(row.updated_at),
        "artifact_uri": artifact_uri(transaction, row),
        "status": row.status,
        "model_type": row.type,
        "source_run_id": row.run_id,
        "tags": pairs(row.tags),
        "registrations": [],
    }
    return {"info": info, "data": {"params": pairs(row.params), "metrics": []}}


def _lookup(row: Row[Any], kind: str, name: str) -> filters.Value:
    if kind in ("params", "tags"):
        found = (row.params if kind == "params" else row.tags).get(name)
        return None if found is None else str(found)
    if name in ("creation_time", "creation_timestamp", "last_updated_timestamp"):
        return float(row.updated_at if name.startswith("last") else row.created_at) * 1000
    columns = {"model_id": "id", "source_run_id": "run_id", "model_type": "type"}
    value = getattr(row, columns.get(name, name), None)
    return None if value is None else str(value)
