"""Registered models: versions, aliases, stages and tags, on the tables that MLflow's calls use too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from muster import errors
from muster.host import clock
from muster.models.references import ModelReference
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of, upsert
from muster.server.models.numbers import number_for, retire
from muster.server.models.usage import refuse_used
from muster.wire.codec import Json, from_json, to_json
from muster.wire.data.access import FileEntry
from muster.wire.data.assets import digest_of
from muster.wire.models import ModelChanges, ModelFormat, ModelView

_VERSIONS, _NAMES, _ALIASES, _FILES = (
    tables.models,
    tables.registered_models,
    tables.model_aliases,
    tables.model_files,
)


def add_model(
    transaction: Transaction,
    name: str,
    path: str,
    run_id: str | None,
    description: str | None,
    tags: Mapping[str, str],
    properties: Mapping[str, Json],
    *,
    kind: str = "custom_model",
    version: int | None = None,
    user: str | None = None,
) -> ModelView:
    """Register the next version of a model, or the requested one."""
    ensure_registered(transaction, name)
    number = number_for(transaction, name, version)
    row = {
        "name": name, "version": number, "run_id": run_id, "path": path or "outputs", "description": description,
        "tags": dict(tags), "properties": dict(properties), "created_at": clock.now(), "type": kind, "created_by": user,
    }  # fmt: skip
    transaction.execute(insert(_VERSIONS), row)
    return find_model(transaction.connection, name, number)


def ensure_registered(transaction: Transaction, name: str) -> None:
    """Add a model's name if it is unknown, whichever way its first version came."""
    now = clock.now()
    if transaction.execute(select(_NAMES.c.name).where(_NAMES.c.name == name)).first() is None:
        row: dict[str, Json] = {"name": name, "description": None, "tags": {}, "created_at": now, "updated_at": now}
        transaction.execute(insert(_NAMES), row)


def list_models(connection: Connection, name: str | None = None, tags: Sequence[str] = ()) -> list[ModelView]:
    """Versions of all models or of one, the newest first; `tags` are NAME=VALUE or NAME."""
    query = select(_VERSIONS).order_by(_VERSIONS.c.name, _VERSIONS.c.version.desc())
    pointing = select(_ALIASES)
    if name is not None:
        query, pointing = query.where(_VERSIONS.c.name == name), pointing.where(_ALIASES.c.name == name)
    aliases: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in connection.execute(pointing.order_by(_ALIASES.c.alias)):
        aliases[row.name, row.version].append(row.alias)
    rows = [row for row in connection.execute(query) if all(_has_tag(row.tags, tag) for tag in tags)]
    return [_view(row, aliases[row.name, row.version]) for row in rows]


def find_model(connection: Connection, name: str, version: int | None) -> ModelView:
    """One version of a model, the newest if none is named."""
    found = list_models(connection, name)
    for model in found:
        if version is None or model.version == version:
            return model
    if found:
        known = ", ".join(str(model.version) for model in found[:20])
        raise errors.NotFound(f"the model {name} has no version {version}", f"Its versions are {known}.")
    raise errors.NotFound(
        f"there is no model {name!r}", f"`muster model register {name} --path …` makes one; `muster model list` lists."
    )


def resolve(connection: Connection, reference: ModelReference) -> ModelView:
    """The version to which a reference points at this moment."""
    found = find_model(connection, reference.name, reference.version)
    if reference.alias is not None:
        versions = list_models(connection, reference.name)
        for model in versions:
            if reference.alias in model.aliases:
                return model
        known = sorted({alias for model in versions for alias in model.aliases})
        hint = f"Its aliases: {', '.join(known) or 'none'}. `muster model promote` gives one."
        raise errors.NotFound(f"the model {reference.name} has no alias {reference.alias!r}", hint)
    if reference.stage is not None:
        for model in list_models(connection, reference.name):
            if model.stage == reference.stage:
                return model
        raise errors.NotFound(
            f"no version of the model {reference.name} has the stage {reference.stage}",
            f"`muster model promote {reference.name}:VERSION --stage {reference.stage}` gives one.",
        )
    return found


def change(transaction: Transaction, name: str, version: int, changes: ModelChanges) -> ModelView:
    """Change a version's description, tags, stage and aliases."""
    model = find_model(transaction.connection, name, version)
    now = clock.now()
    if changes.stage is not None and changes.archive_others:
        same = (_VERSIONS.c.name == name, _VERSIONS.c.stage == changes.stage, _VERSIONS.c.version != version)
        transaction.execute(update(_VERSIONS).where(*same).values(stage="Archived", updated_at=now))
    tags = {key: value for key, value in {**model.tags, **(changes.tags or {})}.items() if value is not None}
    described = model.description if changes.description is None else changes.description
    columns = {"tags": tags, "description": described, "stage": changes.stage or model.stage, "updated_at": now}
    transaction.execute(update(_VERSIONS).where(*_key(name, version)).values(**columns))
    for alias in changes.aliases or ():
        upsert(transaction, _ALIASES, {"name": name, "alias": checked_alias(alias), "version": version})
    for alias in changes.without_aliases:
        mine = (_ALIASES.c.name == name, _ALIASES.c.alias == alias, _ALIASES.c.version == version)
        if not transaction.execute(delete(_ALIASES).where(*mine)).rowcount:
            raise errors.NotFound(f"{name}:{version} has no alias {alias!r}", f"It has: {', '.join(model.aliases)}.")
    return find_model(transaction.connection, name, version)


def checked_alias(alias: str) -> str:
    """An alias that cannot be mistaken for a version; raises JobError."""
    plain = alias.replace("_", "").replace("-", "").replace(".", "")
    if not plain.isalnum() or not plain.isascii() or len(alias) > 255 or alias == "latest" or alias.isdecimal():
        raise errors.JobError(
            f"{alias!r} cannot be an alias", "Use letters, digits, '_', '.' and '-'; not a number, and not latest."
        )
    return alias


def remove(transaction: Transaction, name: str, version: int | None) -> list[ModelView]:
    """Delete one version of a model, or all of them. Returns the deleted ones."""
    found = (
        [find_model(transaction.connection, name, version)] if version else list_models(transaction.connection, name)
    )
    if not found:
        find_model(transaction.connection, name, None)
    refuse_used(transaction.connection, name, version)
    retire(transaction, name, version)
    for table in (_ALIASES, _FILES, _VERSIONS):
        mine = (table.c.name == name, *((table.c.version == version,) if version else ()))
        transaction.execute(delete(table).where(*mine))
    if transaction.execute(select(_VERSIONS.c.name).where(_VERSIONS.c.name == name)).first() is None:
        transaction.execute(delete(_NAMES).where(_NAMES.c.name == name))
    return found


def set_address(transaction: Transaction, model: ModelView, address: str) -> None:
    """Record the address of a version's files, before they are listed."""
    transaction.execute(update(_VERSIONS).where(*_key(model.name, model.version)).values(address=address))


def keep_content(
    transaction: Transaction,
    model: ModelView,
    address: str,
    files: Sequence[FileEntry],
    kind: str,
    formats: Sequence[ModelFormat],
) -> ModelView:
    """Record a version's address, files and formats; the first record is kept."""
    now = find_model(transaction.connection, model.name, model.version)
    if now.num_files is not None:
        return now
    columns = {
        "address": address, "type": kind, "num_files": len(files), "size": sum(entry.size for entry in files),
        "digest": digest_of(files), "formats": to_json(list(formats)),
    }  # fmt: skip
    transaction.execute(update(_VERSIONS).where(*_key(model.name, model.version)).values(**columns))
    own = {"name": model.name, "version": model.version}
    facts = [{**own, "path": e.path, "size": e.size, "sha256": e.sha256, "etag": e.etag} for e in files]
    transaction.execute(insert(_FILES), facts)
    return find_model(transaction.connection, model.name, model.version)


def files(connection: Connection, model: ModelView) -> tuple[FileEntry, ...]:
    """The files of a version; none while they are only in its run."""
    mine = (_FILES.c.name == model.name, _FILES.c.version == model.version)
    query = select(_FILES).where(*mine).order_by(_FILES.c.path)
    return tuple(message_of(FileEntry, row) for row in connection.execute(query))


def at_address(connection: Connection, address: str) -> list[ModelView]:
    """Versions whose files are at an address."""
    return [_view(row, ()) for row in connection.execute(select(_VERSIONS).where(_VERSIONS.c.address == address))]


def _view(row: Row[Any], aliases: Sequence[str]) -> ModelView:
    formats = tuple(from_json(ModelFormat, item) for item in row.formats or ())
    tags = {key: str(value) for key, value in row.tags.items()}
    return message_of(ModelView, row, aliases=tuple(aliases), formats=formats, tags=tags)


def _key(name: str, version: int) -> tuple[Any, Any]:
    return _VERSIONS.c.name == name, _VERSIONS.c.version == version


def _has_tag(tags: Mapping[str, Json], wanted: str) -> bool:
    name, equals, value = wanted.partition("=")
    return name in tags and (not equals or str(tags[name]) == value)
