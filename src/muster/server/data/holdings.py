"""The sizes of a job's inputs and the nodes that have them already, for planning it. Blocking: storages are listed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from sqlalchemy import Connection

from muster import errors
from muster.defaults import NODE_LOST_S
from muster.job.parts import Input
from muster.job.spec import JobSpec
from muster.launch.data_sources import Holding
from muster.paths import data_cache_dir
from muster.server.context import Context
from muster.server.data import assets, datastores, grants
from muster.server.models import registry
from muster.storage.addresses import parse_address
from muster.storage.peers.blocks import Row, everything, shelf_name
from muster.storage.staging.cache import read_source
from muster.storage.staging.model import listing_key, tree_digest
from muster.wire.data.access import FileEntry, where_of

MOST_FILES = 20_000
"""Of a folder that has more, only this many are counted: listing millions takes minutes."""


def look(context: Context, connection: Connection, spec: JobSpec, same_machine: bool) -> dict[str, Holding]:
    """By input, for those at an address that the server can list."""
    holder = grants.Holder("RUN", 1, same_machine)
    found = {}
    for name, item in spec.inputs.items():
        if isinstance(item, Input) and item.path is not None and item.mode != "direct":
            try:
                holding = _look(context, connection, item, holder)
            except errors.MusterError as error:
                holding = Holding(0, 0, trouble=error.message)
            if holding is not None:
                found[name] = holding
    return found


def _look(context: Context, connection: Connection, item: Input, holder: grants.Holder) -> Holding | None:
    access = grants.input_access(context, connection, item, holder)
    if access is None:
        return None
    if access.kind == "file":
        return Holding(0, 0, is_local=True)
    files = _files(context, connection, item, access.folder)
    if files is None:
        return None
    entries = list(islice(files, MOST_FILES + 1))
    more, entries = len(entries) > MOST_FILES, entries[:MOST_FILES]
    holding = Holding(sum(entry.size for entry in entries), len(entries), more)
    if more or not entries:
        return holding
    # In the form that a node uses.
    entries = [replace(entry, etag=(entry.etag or "").strip('"'), token="") for entry in entries]
    where = where_of(access)
    nodes = _nodes(context, where, entries)
    return replace(holding, nodes=nodes, cached=holder.same_machine and _is_cached(where, entries))


def _files(context: Context, connection: Connection, item: Input, folder: bool) -> Iterable[FileEntry] | None:
    """The files of an input; None where only a node can list them."""
    assert item.path is not None
    model = grants.model_of(connection, item.path)
    if model is not None:
        return registry.files(connection, model)
    location, asset = assets.resolve(connection, parse_address(item.path))
    if asset is not None:
        return assets.files(connection, asset)
    store = grants.find_store(context, connection, location) or grants.public_store(location)
    if store is None:
        return None
    spec, path = store
    if folder:
        return datastores.open_store(context, spec).entries(path)
    one = datastores.open_store(context, spec).entry(path)
    return [one] if one is not None else []


def _nodes(context: Context, where: str, entries: list[FileEntry]) -> tuple[str, ...]:
    """The nodes that have all of it and are not lost."""
    row = Row(entries)
    content = row.content()
    if content is None:
        return ()
    held = context.data.board.blocks_of(shelf_name(where, content))
    whole = everything(row.count)
    return tuple(sorted(node for node, have in held if have == whole and context.hub.silent_s(node) < NODE_LOST_S))


def _is_cached(where: str, entries: list[FileEntry]) -> bool:
    """Whether the cache of this machine has it, for nodes that use that one."""
    root = data_cache_dir()
    if all(entry.sha256 for entry in entries):
        return (root / "trees" / tree_digest(entries)).is_dir()
    digest = read_source(root, listing_key(where, entries))
    return digest is not None and (root / "trees" / digest).is_dir()
