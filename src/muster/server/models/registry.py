"""Registered models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, insert, select

from muster import errors
from muster.server.database import tables
from muster.server.database.connection import Transaction


def add_model(transaction: Transaction, data: Mapping[str, Any]) -> dict[str, Any]:
    """Register the next version of a model."""
    models = tables.models
    name = str(data["name"])
    last = transaction.execute(select(func.max(models.c.version)).where(models.c.name == name)).scalar()
    row = {
        "name": name,
        "version": (last or 0) + 1,
        "run_id": data.get("run_id"),
        "path": str(data.get("path") or "outputs"),
        "description": data.get("description"),
        "tags": dict(data.get("tags") or {}),
        "properties": dict(data.get("properties") or {}),
        "created_at": time.time(),
    }
    transaction.execute(insert(models).values(**row))
    return row


def list_models(connection: Connection, name: str | None = None) -> list[dict[str, Any]]:
    models = tables.models
    query = select(models).order_by(models.c.name, models.c.version.desc())
    if name is not None:
        query = query.where(models.c.name == name)
    return [dict(row._mapping) for row in connection.execute(query)]


def find_model(connection: Connection, name: str, version: int | None) -> dict[str, Any]:
    found = list_models(connection, name)
    for model in found:
        if version is None or model["version"] == version:
            return model
    if found:
        known = ", ".join(str(model["version"]) for model in found)
        raise errors.NotFound(f"the model {name} has no version {version}", f"Its versions are {known}.")
    raise errors.NotFound(f"there is no model {name!r}", "Register one with Model.register or run.register_model.")
