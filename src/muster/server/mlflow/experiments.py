"""Experiments: in Muster only names in runs; for MLflow they also have a number, tags and a lifecycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.mlflow import filters
from muster.server.mlflow.protocol import (
    ABSENT,
    EXISTS,
    Answer,
    Call,
    MlflowError,
    milliseconds,
    page_of,
    pairs,
    with_token,
)

_TABLE = tables.experiments
DEFAULT = "default"
"""Muster's experiment for runs that name none: number 0 in MLflow."""
Reader = Connection | Transaction
_MOST_DIGITS = 18


def number_of(transaction: Transaction, name: str) -> str:
    """The number of an experiment; one without a number gets one now."""
    if name == DEFAULT:
        return "0"
    found = transaction.execute(select(_TABLE.c.id).where(_TABLE.c.name == name)).scalar()
    if found is None:
        found = _add(transaction, name, {})
    return str(found)


def name_of(reader: Reader, number: str) -> str:
    """The name of the experiment with this number."""
    return str(_find(reader, number).name) if number != "0" else DEFAULT


def adopt(transaction: Transaction) -> None:
    """Give a number to every experiment that runs have named."""
    runs = tables.runs
    known = select(_TABLE.c.name)
    names = select(runs.c.experiment).distinct().where(runs.c.experiment.not_in(known), runs.c.experiment != DEFAULT)
    for name in transaction.execute(names).scalars().all():
        _add(transaction, name, {})


def create(transaction: Transaction, call: Call) -> Answer:
    name = call.args.text("name")
    if name == DEFAULT or transaction.execute(select(_TABLE.c.id).where(_TABLE.c.name == name)).first():
        raise MlflowError(EXISTS, f"Experiment '{name}' already exists.")
    return {"experiment_id": str(_add(transaction, name, call.args.pairs("tags")))}


def get(transaction: Transaction, call: Call) -> Answer:
    number = call.args.text("experiment_id")
    return {"experiment": _default() if number == "0" else _view(_find(transaction, number))}


def get_by_name(transaction: Transaction, call: Call) -> Answer:
    name = call.args.text("experiment_name")
    if name in (DEFAULT, "Default"):
        return {"experiment": _default()}
    adopt(transaction)
    row = transaction.execute(select(_TABLE).where(_TABLE.c.name == name)).first()
    if row is None:
        raise MlflowError(ABSENT, f"Could not find experiment with name '{name}'")
    return {"experiment": _view(row)}


def search(transaction: Transaction, call: Call) -> Answer:
    adopt(transaction)
    rows: Sequence[Row[Any] | None] = [*transaction.execute(select(_TABLE).order_by(_TABLE.c.id.desc())).all(), None]
    view = call.args.maybe("view_type") or "ACTIVE_ONLY"
    wanted = {"ACTIVE_ONLY": ("active",), "DELETED_ONLY": ("deleted",)}.get(view, ("active", "deleted"))
    shown = [row for row in rows if (row.lifecycle if row else "active") in wanted]
    found = filters.select(shown, filters.parse(call.args.maybe("filter")), _lookup)
    found = filters.order(found, call.args.texts("order_by"), _lookup)
    page, token = page_of(found, call.args, 1000)
    return with_token({"experiments": [_default() if row is None else _view(row) for row in page]}, token)


def change(transaction: Transaction, call: Call) -> Answer:
    _change(transaction, call, name=call.args.text("new_name"))
    return {}


def delete(transaction: Transaction, call: Call) -> Answer:
    _change(transaction, call, lifecycle="deleted")
    return {}


def restore(transaction: Transaction, call: Call) -> Answer:
    _change(transaction, call, lifecycle="active")
    return {}


def set_tag(transaction: Transaction, call: Call) -> Answer:
    row = _find(transaction, call.args.text("experiment_id"))
    _change(transaction, call, tags={**row.tags, call.args.key("key"): call.args.maybe("value") or ""})
    return {}


def delete_tag(transaction: Transaction, call: Call) -> Answer:
    row = _find(transaction, call.args.text("experiment_id"))
    _change(transaction, call, tags={key: value for key, value in row.tags.items() if key != call.args.text("key")})
    return {}


def _change(transaction: Transaction, call: Call, **columns: Any) -> None:
    row = _find(transaction, call.args.text("experiment_id"))
    transaction.execute(update(_TABLE).where(_TABLE.c.id == row.id).values(updated_at=clock.now(), **columns))


def _add(transaction: Transaction, name: str, tags: dict[str, str]) -> int:
    now = clock.now()
    row = {"name": name, "tags": tags, "lifecycle": "active", "created_at": now, "updated_at": now}
    return int(transaction.execute(insert(_TABLE).values(**row).returning(_TABLE.c.id)).scalar_one())


def _find(reader: Reader, number: str) -> Row[Any]:
    is_number = number.isdecimal() and len(number) <= _MOST_DIGITS
    found = reader.execute(select(_TABLE).where(_TABLE.c.id == int(number))).first() if is_number else None
    if found is None:
        raise MlflowError(ABSENT, f"No Experiment with id={number} exists")
    return found


def _view(row: Row[Any]) -> Answer:
    return {
        "experiment_id": str(row.id),
        "name": row.name,
        "artifact_location": f"mlflow-artifacts:/{row.id}",
        "lifecycle_stage": row.lifecycle,
        "creation_time": milliseconds(row.created_at),
        "last_update_time": milliseconds(row.updated_at),
        "tags": pairs(row.tags),
    }


def _default() -> Answer:
    return {
        "experiment_id": "0",
        "name": "Default",
        "artifact_location": "mlflow-artifacts:/0",
        "lifecycle_stage": "active",
        "creation_time": 0,
        "last_update_time": 0,
        "tags": [],
    }


def _lookup(row: Row[Any] | None, kind: str, name: str) -> filters.Value:
    if kind == "tags":
        return row.tags.get(name) if row else None
    if name == "name":
        return str(row.name) if row else "Default"
    columns = {"creation_time": "created_at", "last_update_time": "updated_at", "experiment_id": "id"}
    value = getattr(row, columns.get(name, name), None) if row else 0.0
    return float(value) * (1000 if name in ("creation_time", "last_update_time") else 1) if value is not None else None
