"""Encryption at rest: the key is tried before anything is served, and can be changed while the server works."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from muster import errors
from muster.host.files import write_json
from muster.server.context import Context
from muster.server.database import tables
from muster.store.backend import Store
from muster.store.keyring import KeyRing, load_key

log = logging.getLogger("muster.server")

_CHECK = "encryption/check"
_WORDS = b"This opens with the workspace's key."


def check_key(store: Store) -> None:
    """Refuse to serve with another key than the store was written with."""
    if not store.encrypted:
        # Says so itself where an earlier server encrypted, and the key is no longer named.
        if store.exists(_CHECK):
            store.read(_CHECK)
        return
    if not store.exists(_CHECK):
        store.put(_CHECK, [_WORDS])
    elif store.read(_CHECK) != _WORDS:
        raise errors.UserError(f"{_CHECK} in the workspace store is not what was written there", "Restore it.")


def describe(context: Context) -> dict[str, Any]:
    """Whether and with which key the store is encrypted."""
    config = json.loads(context.paths.config.read_text()).get("encryption") or {}
    source = next((name for name in ("key_file", "key_env", "key_command") if config.get(name)), None)
    ring = context.ring
    return {
        "encrypted": ring is not None,
        "key": ring.first.id.hex() if ring else None,
        "source": source,
        "rotating": bool(config.get("previous")),
    }


def rotate(context: Context, source: Mapping[str, Any]) -> int:
    """Wrap every file's key in a new key; returns how many files that were. A death in between is made good later."""
    ring = context.ring
    if ring is None:
        hint = "Name a key under `encryption` in workspace.json first."
        raise errors.Conflict("the workspace is not encrypted", hint)
    config = json.loads(context.paths.config.read_text())
    old = {name: value for name, value in config["encryption"].items() if name != "previous"}
    fresh = load_key(source, context.paths.root)
    if fresh.id == ring.first.id:
        raise errors.Conflict(f"the key {fresh.id.hex()} is the workspace's key already", "Make a new one.")
    # Both are named before the first header changes, so that the next server can read whatever it finds.
    previous = [old, *(config["encryption"].get("previous") or [])]
    write_json(context.paths.config, {**config, "encryption": {**source, "previous": previous}}, indent=2, durable=True)
    ring.lead(fresh)
    return finish_rotation(context)


def resume_rotation(context: Context) -> None:
    """What a server that was killed while it changed the key left undone."""
    finish_rotation(context)


def finish_rotation(context: Context) -> int:
    """Bring what still has an older key to the first one; then the older ones are no longer named."""
    ring = context.ring
    config = json.loads(context.paths.config.read_text())
    if ring is None or not (config.get("encryption") or {}).get("previous"):
        return 0
    count = context.streams.rewrap()
    for store in _stores(context, ring):
        # Names first: rewriting while a listing goes on could show a file twice.
        names = [name for name, _, _ in store.files()]
        count += sum(_rewrap(store, name) for name in names)
    kept = {name: value for name, value in config["encryption"].items() if name != "previous"}
    write_json(context.paths.config, {**config, "encryption": kept}, indent=2, durable=True)
    log.info("%d files have the key %s now", count, ring.first.id.hex())
    return count


def _rewrap(store: Store, name: str) -> bool:
    try:
        return store.rewrap(name)
    except FileNotFoundError:
        # Removed meanwhile, or a put that has got its name.
        return False


def _stores(context: Context, ring: KeyRing) -> Iterator[Store]:
    yield context.store

    def folders(connection: Connection) -> list[str]:
        rows = connection.execute(select(tables.datastores.c.options).where(tables.datastores.c.kind == "local"))
        return [str(row.options["path"]) for row in rows if row.options.get("encrypted")]

    for folder in context.database.read_now(folders):
        if Path(folder).is_dir():
            yield Store(folder, ring=ring)
