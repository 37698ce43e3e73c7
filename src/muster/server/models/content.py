"""The files of a model version: moved to their own folder, listed, hashed, and their formats recognised. Takes time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import BinaryIO

from sqlalchemy import Connection

from muster import errors
from muster.models import formats
from muster.server.context import Context
from muster.server.data import asset_content, datastores
from muster.server.database.connection import Transaction
from muster.server.database.records import find_run
from muster.server.models import registry
from muster.server.runs.views import files_of
from muster.storage.addresses import DEFAULT_DATASTORE, datastore_address, joined, parse_address
from muster.storage.connectors.datastore import Datastore
from muster.wire import states
from muster.wire.data.access import FileEntry
from muster.wire.data.assets import NewAsset, digest_of
from muster.wire.models import MODEL_TYPES, ModelFormat, ModelView, NewModel

FOLDER = "models"
RUN_FILES = "run-files"
SNAPSHOT = "snapshot"
"""The property with the snapshot that holds versions of earlier releases of Muster."""
_DIGITS = 12
_FAR_FILE = 64 << 20
"""Of a remote file no more than this is fetched to recognise its format."""


@dataclass(frozen=True)
class Source:
    """One file of a future model: its path there, and the location of its bytes in the workspace store."""

    entry: FileEntry
    location: str


def settle(context: Context, model: ModelView) -> ModelView:
    """Make sure that a version's files have their own folder; returns the version as it is then."""
    if model.num_files is not None:
        return model
    if model.address is not None:
        address, files = model.address, _listed(context, model.address)
    else:
        sources = _sources(context, model)
        address, files = place(context, f"{FOLDER}/{model.name}", sources), [item.entry for item in sources]
    looks = _describe(context, address, files)
    named = formats.type_of([entry.path for entry in files])
    kind = named if model.type == "custom_model" else model.type
    return context.database.submit(
        lambda transaction: registry.keep_content(transaction, model, address, files, kind, looks)
    ).result()


def register(context: Context, body: NewModel, user: str) -> ModelView:
    """Register files that a client sent to a datastore, or that are there already, with their size and hashes."""
    assert body.address is not None
    kind = body.type or "custom_model"
    if kind not in MODEL_TYPES:
        raise errors.JobError(f"a model cannot be of type {kind!r}", f"Types are {', '.join(MODEL_TYPES)}.")
    is_file = None if body.files is None else len(body.files) == 1 and body.files[0].path == ""
    data_type = None if is_file is None else ("uri_file" if is_file else "uri_folder")
    _, files = asset_content.measure(context, NewAsset(body.name, body.address, type=data_type, files=body.files))
    address = str(parse_address(body.address))
    asset_content.protect(context, address, files)
    looks = _describe(context, address, files)
    if body.type is None:
        kind = formats.type_of([entry.path for entry in files])
    name = address.rstrip("/").rpartition("/")[2] if files[0].path == "" else f"{body.path.strip('/')}/"

    def write(transaction: Transaction) -> ModelView:
        made = registry.add_model(
            transaction, body.name, name, body.run_id, body.description, body.tags, body.properties,
            kind=kind, version=body.version, user=user,
        )  # fmt: skip
        return registry.keep_content(transaction, made, address, files, kind, looks)

    return context.database.submit(write).result()


def require_files(context: Context, run: str, path: str) -> None:
    """Refuse files that a run does not have, if it is over and will not get them."""
    if context.database.read_now(lambda c: find_run(c, run)).status in states.TERMINAL:
        _of_run(context, run, path)


def run_files(context: Context, run: str, path: str) -> tuple[str, bool]:
    """Give files of a run their own folder, so that a job can read them; the address, and whether it is one file."""
    sources = _of_run(context, run, path)
    return place(context, f"{RUN_FILES}/{run}", sources), sources[0].entry.path == ""


def place(context: Context, folder: str, sources: Sequence[Source]) -> str:
    """Put files of the workspace store together in its datastore, without a copy where possible; the address."""
    entries = [item.entry for item in sources]
    told = "".join(f"{item.entry.path}\0{item.location}\n" for item in sources)
    # The same files get the same folder, so that repeating this does nothing.
    key = (digest_of(entries) or hashlib.sha256(told.encode()).hexdigest())[:_DIGITS]
    one = entries[0].path == ""
    base = joined(folder, key)
    for item in sources:
        name = sources[0].location.rpartition("/")[2] if one else item.entry.path
        target = f"{datastores.BUILT_IN_FOLDER}/{base}/{name}"
        if not context.files.store.exists(target):
            context.files.store.link(item.location, target)
    inner = joined(base, sources[0].location.rpartition("/")[2]) if one else base
    address = datastore_address(DEFAULT_DATASTORE, inner)
    asset_content.protect(context, address, entries)
    return address


def discard(context: Context, models: Sequence[ModelView]) -> None:
    """Remove the files of deleted versions, unless another version has the same folder."""
    root = datastore_address(DEFAULT_DATASTORE, f"{FOLDER}/")
    for address in {model.address for model in models if model.address and model.address.startswith(root)}:
        if context.database.read_now(partial(registry.at_address, address=address)):
            continue
        parts = parse_address(address).path.split("/")
        context.files.store.remove("/".join((datastores.BUILT_IN_FOLDER, *parts[:3])))


def _sources(context: Context, model: ModelView) -> list[Source]:
    digest = model.properties.get(SNAPSHOT)
    if isinstance(digest, str):
        return _of_snapshot(context, model, digest)
    if model.run_id is None:
        raise errors.NotFound(
            f"the model {model.name}:{model.version} lies at {model.path}, which is no place of this workspace",
            "Register it from a folder, a datastore or a run.",
        )
    return _of_run(context, model.run_id, model.path)


def _of_run(context: Context, run: str, path: str) -> list[Source]:
    inner = path.strip("/")

    def look(connection: Connection) -> list[Source]:
        found = files_of(context, connection, run, with_checkpoints=True)
        return [
            Source(FileEntry(_below(file.path, inner), file.size, file.sha256), file.location)
            for file in found
            if file.path == inner or file.path.startswith(f"{inner}/") or not inner
        ]

    sources = context.database.read_now(look)
    if not sources:
        raise errors.NotFound(
            f"the run {run} keeps no file or folder {inner!r}", f"`muster show {run}` lists its files."
        )
    return sources


def _of_snapshot(context: Context, model: ModelView, digest: str) -> list[Source]:
    files = context.files.snapshots.files(digest)
    one = not model.path.endswith("/") and len(files) == 1
    return [
        Source(FileEntry("" if one else path, size, sha256), f"code/blobs/{sha256[:2]}/{sha256}")
        for path, (sha256, size, _) in files.items()
    ]


def _below(path: str, folder: str) -> str:
    return path[len(folder) :].lstrip("/") if folder else path


def _listed(context: Context, address: str) -> list[FileEntry]:
    _, found = asset_content.measure(context, NewAsset("model", address))
    return found


def _describe(context: Context, address: str, files: Sequence[FileEntry]) -> tuple[ModelFormat, ...]:
    location = parse_address(address)
    if location.kind != "datastore":
        return ()
    spec = context.database.read_now(lambda c: datastores.find(context, c, location.store))
    datastore = datastores.open_store(context, spec)
    here = location.store == DEFAULT_DATASTORE
    one = location.path.rpartition("/")[2] if files[0].path == "" else ""
    sizes: Mapping[str, int] = {entry.path or one: entry.size for entry in files}
    near = {name: size for name, size in sizes.items() if here or size <= _FAR_FILE}

    def open_file(name: str) -> BinaryIO:
        path = location.path if one else joined(location.path, name)
        if here:
            return context.files.store.open(joined(datastores.BUILT_IN_FOLDER, path))
        return _fetched(datastore, path)

    return formats.describe(near, open_file)


def _fetched(datastore: Datastore, path: str) -> BinaryIO:
    return BytesIO(b"".join(datastore.read(path)))
