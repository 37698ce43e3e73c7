"""Registered models: versions, aliases, stages and tags, in the tables of Muster's own models."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, insert, select, update
from sqlalchemy import delete as delete_rows

from muster.host import clock
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import upsert
from muster.server.mlflow import filters, logged_models, run_views
from muster.server.mlflow.artifacts import SCHEME, place_of
from muster.server.mlflow.protocol import (
    ABSENT,
    EXISTS,
    INVALID,
    Answer,
    Call,
    MlflowError,
    milliseconds,
    page_of,
    pairs,
    with_token,
)
from muster.server.models.numbers import retire
from muster.server.models.registry import add_model, ensure_registered
from muster.server.models.usage import refuse_used
from muster.wire.codec import Json

_MODELS, _VERSIONS, _ALIASES = tables.registered_models, tables.models, tables.model_aliases
_MOST_DIGITS = 9
STAGES = ("None", "Staging", "Production", "Archived")


def create(transaction: Transaction, call: Call) -> Answer:
    name = call.args.text("name")
    if transaction.execute(select(_MODELS.c.name).where(_MODELS.c.name == name)).first():
        raise MlflowError(EXISTS, f"Registered Model (name={name}) already exists.")
    now = clock.now()
    row = {"name": name, "description": call.args.maybe("description"), "tags": call.args.pairs("tags")}
    transaction.execute(insert(_MODELS), {**row, "created_at": now, "updated_at": now})
    return {"registered_model": _view(transaction, _find(transaction, name))}


def get(transaction: Transaction, call: Call) -> Answer:
    return {"registered_model": _view(transaction, _find(transaction, call.args.text("name")))}


def change(transaction: Transaction, call: Call) -> Answer:
    _change(transaction, call.args.text("name"), description=call.args.maybe("description"))
    return get(transaction, call)


def rename(transaction: Transaction, call: Call) -> Answer:
    name, new = call.args.text("name"), call.args.text("new_name")
    _find(transaction, name)
    if transaction.execute(select(_MODELS.c.name).where(_MODELS.c.name == new)).first():
        raise MlflowError(EXISTS, f"Registered Model (name={new}) already exists.")
    retire(transaction, name)
    for table in (_MODELS, _VERSIONS, _ALIASES, tables.model_files):
        transaction.execute(update(table).where(table.c.name == name).values(name=new))
    return {"registered_model": _view(transaction, _find(transaction, new))}


def delete(transaction: Transaction, call: Call) -> Answer:
    name = _find(transaction, call.args.text("name")).name
    refuse_used(transaction.connection, name, None)
    retire(transaction, name)
    for table in (_ALIASES, tables.model_files, _VERSIONS, _MODELS):
        transaction.execute(delete_rows(table).where(table.c.name == name))
    return {}


def search(transaction: Transaction, call: Call) -> Answer:
    rows = transaction.execute(select(_MODELS).order_by(_MODELS.c.name)).all()
    found = filters.select(rows, filters.parse(_without_prompts(call.args.maybe("filter"))), _lookup)
    found = filters.order(found, call.args.texts("order_by"), _lookup)
    page, token = page_of(found, call.args, 100)
    return with_token({"registered_models": [_view(transaction, row) for row in page]}, token)


def latest_versions(transaction: Transaction, call: Call) -> Answer:
    row = _find(transaction, call.args.text("name"))
    wanted = {stage.lower() for stage in call.args.texts("stages")}
    found = _latest(transaction, row.name)
    return {"model_versions": [item for item in found if not wanted or str(item["current_stage"]).lower() in wanted]}


def set_tag(transaction: Transaction, call: Call) -> Answer:
    row = _find(transaction, call.args.text("name"))
    _change(transaction, row.name, tags={**row.tags, call.args.key("key"): call.args.maybe("value") or ""})
    return {}


def delete_tag(transaction: Transaction, call: Call) -> Answer:
    row = _find(transaction, call.args.text("name"))
    key = call.args.text("key")
    _change(transaction, row.name, tags={name: value for name, value in row.tags.items() if name != key})
    return {}


def set_alias(transaction: Transaction, call: Call) -> Answer:
    version = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    row = {"name": version.name, "alias": call.args.key("alias"), "version": version.version}
    upsert(transaction, _ALIASES, row)
    return {}


def delete_alias(transaction: Transaction, call: Call) -> Answer:
    name, alias = _find(transaction, call.args.text("name")).name, call.args.text("alias")
    transaction.execute(delete_rows(_ALIASES).where(_ALIASES.c.name == name, _ALIASES.c.alias == alias))
    return {}


def by_alias(transaction: Transaction, call: Call) -> Answer:
    name, alias = call.args.text("name"), call.args.text("alias")
    mine = (_ALIASES.c.name == _find(transaction, name).name, _ALIASES.c.alias == alias)
    version = transaction.execute(select(_ALIASES.c.version).where(*mine)).scalar()
    if version is None:
        raise MlflowError(INVALID, f"Registered model alias {alias} not found.")
    return {"model_version": _version_view(transaction, _find_version(transaction, name, str(version)))}


# Versions


def create_version(transaction: Transaction, call: Call) -> Answer:
    args = call.args
    name, source, model_id = args.text("name"), args.text("source"), args.maybe("model_id")
    _find(transaction, name)
    run_id, path = _origin(transaction, source, args.maybe("run_id"), model_id)
    made = add_model(transaction, name, path, run_id, args.maybe("description"), args.pairs("tags"), {})
    columns = {"source": source, "logged_model": model_id, "created_by": call.user}
    key = (_VERSIONS.c.name == name, _VERSIONS.c.version == made.version)
    transaction.execute(update(_VERSIONS).where(*key).values(**columns))
    return {"model_version": _version_view(transaction, _find_version(transaction, name, str(made.version)))}


def get_version(transaction: Transaction, call: Call) -> Answer:
    row = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    return {"model_version": _version_view(transaction, row)}


def change_version(transaction: Transaction, call: Call) -> Answer:
    _change_version(transaction, call, description=call.args.maybe("description"))
    return get_version(transaction, call)


def delete_version(transaction: Transaction, call: Call) -> Answer:
    row = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    refuse_used(transaction.connection, row.name, row.version)
    retire(transaction, row.name, row.version)
    for table in (_ALIASES, tables.model_files, _VERSIONS):
        transaction.execute(delete_rows(table).where(table.c.name == row.name, table.c.version == row.version))
    return {}


def search_versions(transaction: Transaction, call: Call) -> Answer:
    query = select(_VERSIONS).order_by(_VERSIONS.c.created_at.desc(), _VERSIONS.c.name, _VERSIONS.c.version.desc())
    rows = transaction.execute(query).all()
    found = filters.select(rows, filters.parse(_without_prompts(call.args.maybe("filter"))), _lookup)
    found = filters.order(found, call.args.texts("order_by"), _lookup)
    page, token = page_of(found, call.args, 10_000)
    return with_token({"model_versions": [_version_view(transaction, row) for row in page]}, token)


def download_uri(transaction: Transaction, call: Call) -> Answer:
    row = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    if row.run_id is None:
        return {"artifact_uri": row.source or row.path}
    run = run_views.one(transaction, row.run_id)
    return {"artifact_uri": run_views.artifact_uri(run.experiment_id, row.run_id, row.path)}


def transition(transaction: Transaction, call: Call) -> Answer:
    stage = next((known for known in STAGES if known.lower() == call.args.text("stage").lower()), None)
    if stage is None:
        raise MlflowError(INVALID, f"Invalid Model Version stage: {call.args.text('stage')}; known: {STAGES}")
    row = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    if call.args.maybe("archive_existing_versions") in ("true", "True") and stage in STAGES[1:3]:
        same = (_VERSIONS.c.name == row.name, _VERSIONS.c.stage == stage)
        transaction.execute(update(_VERSIONS).where(*same).values(stage="Archived", updated_at=clock.now()))
    _change_version(transaction, call, stage=stage)
    return get_version(transaction, call)


def set_version_tag(transaction: Transaction, call: Call) -> Answer:
    row = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    _change_version(transaction, call, tags={**row.tags, call.args.key("key"): call.args.maybe("value") or ""})
    return {}


def delete_version_tag(transaction: Transaction, call: Call) -> Answer:
    row = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    key = call.args.text("key")
    _change_version(transaction, call, tags={name: value for name, value in row.tags.items() if name != key})
    return {}


def _origin(transaction: Transaction, source: str, run_id: str | None, model_id: str | None) -> tuple[str | None, str]:
    """The run, and the path in it, that a version's source names."""
    if source.startswith("models:/m-"):
        model_id = source.removeprefix("models:/").partition("/")[0]
    if model_id is not None:
        row = logged_models.find(transaction, model_id)
        return row.run_id, f"{logged_models.FOLDER}/{row.id}"
    if source.startswith("runs:/"):
        run, _, path = source.removeprefix("runs:/").partition("/")
        return run_views.find(transaction, run).id, path
    if source.startswith(SCHEME):
        place = place_of(source.removeprefix(SCHEME))
        return run_views.find(transaction, place.run_id).id, place.path
    if source.startswith("models:/"):
        name, _, version = source.removeprefix("models:/").partition("/")
        row = _find_version(transaction, name, version)
        return row.run_id, row.path
    if run_id is not None:
        run_views.find(transaction, run_id)
    return run_id, source


def _find(transaction: Transaction, name: str) -> Row[Any]:
    row = transaction.execute(select(_MODELS).where(_MODELS.c.name == name)).first()
    if row is None and transaction.execute(select(_VERSIONS.c.name).where(_VERSIONS.c.name == name)).first():
        ensure_registered(transaction, name)
        row = transaction.execute(select(_MODELS).where(_MODELS.c.name == name)).first()
    if row is None:
        raise MlflowError(ABSENT, f"Registered Model with name={name} not found")
    return row  # type: ignore[no-any-return]


def _find_version(transaction: Transaction, name: str, version: str) -> Row[Any]:
    if not version.isdecimal() or len(version) > _MOST_DIGITS:
        raise MlflowError(INVALID, f"Model version must be an integer, got '{version}'")
    mine = (_VERSIONS.c.name == name, _VERSIONS.c.version == int(version))
    row = transaction.execute(select(_VERSIONS).where(*mine)).first()
    if row is None:
        raise MlflowError(ABSENT, f"Model Version (name={name}, version={version}) not found")
    return row  # type: ignore[no-any-return]


def _change(transaction: Transaction, name: str, **columns: Any) -> None:
    _find(transaction, name)
    transaction.execute(update(_MODELS).where(_MODELS.c.name == name).values(updated_at=clock.now(), **columns))


def _change_version(transaction: Transaction, call: Call, **columns: Any) -> None:
    row = _find_version(transaction, call.args.text("name"), call.args.text("version"))
    key = (_VERSIONS.c.name == row.name, _VERSIONS.c.version == row.version)
    transaction.execute(update(_VERSIONS).where(*key).values(updated_at=clock.now(), **columns))


def _aliases(transaction: Transaction, name: str) -> list[tuple[str, int]]:
    query = select(_ALIASES.c.alias, _ALIASES.c.version).where(_ALIASES.c.name == name).order_by(_ALIASES.c.alias)
    return [(alias, version) for alias, version in transaction.execute(query)]


def _latest(transaction: Transaction, name: str) -> list[Answer]:
    """The newest version of each stage."""
    query = select(_VERSIONS).where(_VERSIONS.c.name == name).order_by(_VERSIONS.c.version)
    newest = {row.stage: row for row in transaction.execute(query)}
    return [_version_view(transaction, row) for row in newest.values()]


def _view(transaction: Transaction, row: Row[Any]) -> Answer:
    aliases: list[Json] = [
        {"alias": alias, "version": str(version)} for alias, version in _aliases(transaction, row.name)
    ]
    return {
        "name": row.name,
        "creation_timestamp": milliseconds(row.created_at),
        "last_updated_timestamp": milliseconds(row.updated_at),
        "description": row.description or "",
        "latest_versions": [*_latest(transaction, row.name)],
        "tags": pairs(row.tags),
        "aliases": aliases,
    }


def _version_view(transaction: Transaction, row: Row[Any]) -> Answer:
    mine: list[Json] = [alias for alias, version in _aliases(transaction, row.name) if version == row.version]
    return {
        "name": row.name,
        "version": str(row.version),
        "creation_timestamp": milliseconds(row.created_at),
        "last_updated_timestamp": milliseconds(row.updated_at or row.created_at),
        "user_id": row.created_by or "",
        "current_stage": row.stage,
        "description": row.description or "",
        "source": row.source or (f"runs:/{row.run_id}/{row.path}" if row.run_id else row.path),
        "run_id": row.run_id or "",
        "status": "READY",
        "tags": pairs({key: str(value) for key, value in row.tags.items()}),
        "run_link": "",
        "aliases": mine,
        **({"model_id": row.logged_model} if row.logged_model else {}),
    }


def _lookup(row: Row[Any], kind: str, name: str) -> filters.Value:
    if kind == "tags":
        found = row.tags.get(name)
        return None if found is None else str(found)
    columns = {
        "creation_timestamp": "created_at", "creation_time": "created_at", "timestamp": "updated_at",
        "last_updated_timestamp": "updated_at", "version_number": "version", "source_path": "source",
    }  # fmt: skip
    value = getattr(row, columns.get(name, name), None)
    if isinstance(value, int | float):
        return float(value) * (1000 if columns.get(name, "").endswith("_at") else 1)
    return None if value is None else str(value)


def _without_prompts(text: str | None) -> str | None:
    """The filter without the clause by which clients exclude prompts; there are none here."""
    if text is None:
        return None
    parts = [part for part in text.split(" AND ") if "mlflow.prompt.is_prompt" not in part]
    return " AND ".join(parts)
