"""Encryption at rest: the key is tried before anything is served, and can be changed while the server works."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, select, update

from muster import errors
from muster.host.files import UNFINISHED, write_json
from muster.server.context import Context
from muster.server.data import datastores
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.notifications import subscriptions
from muster.server.people import secrets
from muster.storage.kinds import LocalFolder
from muster.store.backend import Store
from muster.store.keyring import KeyRing, load_key, read_config
from muster.wire.codec import Json, from_json, to_json
from muster.wire.encryption import EncryptionConfig, EncryptionView, NewKey, RotatedKey, SecretsResealed

log = logging.getLogger("muster.server")

_CHECK = "encryption/check"
_WORDS = b"This opens with the workspace's key."


def check_key(store: Store) -> None:
    """Refuse to serve with another key than the store was written with."""
    if not store.encrypted:
        # This raises an error if an earlier server encrypted, and the key is no longer named.
        if store.exists(_CHECK):
            store.read(_CHECK)
        return
    if not store.exists(_CHECK):
        store.put(_CHECK, [_WORDS])
    elif store.read(_CHECK) != _WORDS:
        raise errors.UserError(f"{_CHECK} in the workspace store is not what was written there", "Restore it.")


def describe(context: Context) -> EncryptionView:
    """Whether and with which key the store is encrypted."""
    config = read_config(_workspace(context)) or EncryptionConfig()
    source = next((name for name in ("key_file", "key_env", "key_command") if getattr(config, name)), None)
    ring = context.files.ring
    key = ring.first.id.hex() if ring else None
    return EncryptionView(ring is not None, key, source, bool(config.previous))


def rotate(context: Context, new: NewKey) -> RotatedKey:
    """Wrap every file's key in a new key. A crash in between is made good later."""
    ring, config = context.files.ring, read_config(_workspace(context))
    if ring is None or config is None:
        hint = "Name a key under `encryption` in workspace.json first."
        raise errors.Conflict("the workspace is not encrypted", hint)
    fresh = load_key(new, context.paths.root)
    if fresh.id == ring.first.id:
        raise errors.Conflict(f"the key {fresh.id.hex()} is the workspace's key already", "Make a new one.")
    # Both keys are named before the first header changes, so that the next server can read whatever it finds.
    _write_config(context, _config(new, (_source(config), *config.previous)))
    ring.lead(fresh)
    count = finish_rotation(context)
    return RotatedKey(**vars(describe(context)), files=count)


def rotate_secrets(context: Context) -> SecretsResealed:
    """Seal secrets and credentials with a fresh key. A crash in between is made good later."""
    if context.vault.file is None:
        raise errors.Conflict(
            "the workspace's key comes from MUSTER_KEY, MUSTER_KEY_FILE or MUSTER_KEY_COMMAND",
            "Only a key that the workspace keeps itself can be changed here.",
        )
    context.vault.begin_change()
    return SecretsResealed(context.vault.key_id, finish_secrets(context))


def finish_secrets(context: Context) -> int:
    """Reseal what may still be sealed with an older key, then drop that key. Returns how many were resealed."""
    if not context.vault.is_changing:
        return 0
    count = context.database.submit(partial(_reseal, context)).result()
    context.vault.end_change()
    return count


def _reseal(context: Context, transaction: Transaction) -> int:
    count = 0
    for table, name, about in (
        (tables.secrets, tables.secrets.c.name, secrets.about),
        (tables.datastores, tables.datastores.c.name, datastores.about),
        (tables.subscriptions, tables.subscriptions.c.id, subscriptions.about),
    ):
        for key, old in transaction.execute(select(name, table.c.sealed).where(table.c.sealed.is_not(None))).all():
            sealed = context.vault.seal(context.vault.open(old, about(key)), about(key))
            transaction.execute(update(table).where(name == key).values(sealed=sealed))
            count += 1
    return count


def finish_rotation(context: Context) -> int:
    """Rewrap files that still have an older key with the first one; then the older ones are no longer named.

    Called at every start too, to finish what a killed server left undone.
    """
    finish_secrets(context)
    ring = context.files.ring
    config = read_config(_workspace(context))
    if ring is None or config is None or not config.previous:
        return 0
    count, failed = context.files.streams.rewrap(), 0
    for store in _stores(context, ring):
        # Names first: rewriting while a listing goes on could show a file twice. An unfinished put gets the new key at
        # its end, or is waste.
        names = [name for name, _, _ in store.files() if UNFINISHED not in name.rpartition("/")[2]]
        for name in names:
            try:
                count += _rewrap(store, name)
            except errors.UserError as error:
                failed += 1
                log.error("%s keeps its key: %s", name, error)
    if failed or ring.is_writing_with_older():
        # An upload that began before has the older key until it ends: the next start of the server looks again.
        log.warning("the older key stays named until the next start: %d files cannot be given the new one", failed)
        return count
    _write_config(context, _config(config))
    log.info("%d files have the key %s now", count, ring.first.id.hex())
    return count


def _rewrap(store: Store, name: str) -> bool:
    try:
        return store.rewrap(name)
    except FileNotFoundError:
        # Removed meanwhile, or a put that was given its final name.
        return False


def _stores(context: Context, ring: KeyRing) -> Iterator[Store]:
    yield context.files.store

    def folders(connection: Connection) -> list[str]:
        rows = connection.execute(
            select(tables.datastores.c.options).where(tables.datastores.c.kind == LocalFolder.kind)
        )
        found = [from_json(LocalFolder, row.options) for row in rows]
        return [folder.path for folder in found if folder.encrypted]

    for folder in context.database.read_now(folders):
        if Path(folder).is_dir():
            yield Store(folder, ring=ring)


def _source(config: EncryptionConfig) -> NewKey:
    return NewKey(config.key_file, config.key_env, config.key_command)


def _config(key: NewKey, previous: tuple[NewKey, ...] = ()) -> EncryptionConfig:
    return EncryptionConfig(key.key_file, key.key_env, key.key_command, previous)


def _workspace(context: Context) -> dict[str, Json]:
    """The whole of workspace.json: keys that are not known here stay."""
    found: dict[str, Json] = json.loads(context.paths.config.read_text())
    return found


def _write_config(context: Context, config: EncryptionConfig) -> None:
    changed = {**_workspace(context), "encryption": to_json(config)}
    write_json(context.paths.config, changed, indent=2, durable=True)
