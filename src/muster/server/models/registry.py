"""Registered models."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import Connection, func, insert, select

from muster import errors
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of
from muster.wire.codec import Json, to_json
from muster.wire.models import ModelView


def add_model(
    transaction: Transaction,
    name: str,
    path: str,
    run_id: str | None,
    description: str | None,
    tags: Mapping[str, str],
    properties: Mapping[str, Json],
) -> ModelView:
    """Register the next version of a model."""
    models = tables.models
    ensure_registered(transaction, name)
    last = transaction.execute(select(func.max(models.c.version)).where(models.c.name == name)).scalar()
    made = ModelView(name, (last or 0) + 1, run_id, path or "outputs", description, tags, properties, time.time())
    transaction.execute(insert(models), to_json(made))
    return made


def ensure_registered(transaction: Transaction, name: str) -> None:
    """Have a model be known by its name, whichever way its first version came."""
    table, now = tables.registered_models, time.time()
    if transaction.execute(select(table.c.name).where(table.c.name == name)).first() is None:
        row: dict[str, Json] = {"name": name, "description": None, "tags": {}, "created_at": now, "updated_at": now}
        transaction.execute(insert(table), row)


def list_models(connection: Connection, name: str | None = None) -> list[ModelView]:
    models = tables.models
    query = select(models).order_by(models.c.name, models.c.version.desc())
    if name is not None:
        query = query.where(models.c.name == name)
    return [message_of(ModelView, row) for row in connection.execute(query)]


def find_model(connection: Connection, name: str, version: int | None) -> ModelView:
    found = list_models(connection, name)
    for model in found:
        if version is None or model.version == version:
            return model
    if found:
        known = ", ".join(str(model.version) for model in found)
        raise errors.NotFound(f"the model {name} has no version {version}", f"Its versions are {known}.")
    raise errors.NotFound(f"there is no model {name!r}", "Register one with Model.register or run.register_model.")
