"""Checks a job's data before it is queued: its datastores and secrets must exist, and its versions are fixed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from muster import errors
from muster.job import rules
from muster.job.expressions import secret_names
from muster.job.parts import Input, Output
from muster.job.spec import JobSpec
from muster.models.references import is_model_input
from muster.server.context import Context
from muster.server.data import assets, datastores, grants
from muster.server.models import inputs, registry
from muster.server.models import outputs as model_outputs
from muster.server.people import secrets
from muster.storage.addresses import Location, datastore_address, parse_address
from muster.storage.kinds import LocalFolder, StoreSpec, WorkspaceFolder
from muster.storage.reach import require_location
from muster.wire.people import ADMIN

_INSTEAD = "--input NAME=PATH gives others in their place."
_PUT_THERE = f"`muster data cp ./FOLDER ADDRESS` puts files there; {_INSTEAD}"


def settle(context: Context, connection: Connection, spec: JobSpec, person: str | None = None) -> JobSpec:
    """The job with the versions of its data fixed; raises an error that names the input and what is wrong with it."""
    if names := secret_names(spec):
        secrets.require_use(context, connection, names, person)
    _require_reach(context, spec, person)
    fixed = dict(spec.inputs)
    for name, item in spec.inputs.items():
        if isinstance(item, Input) and item.path and rules.is_address(item.path):
            with _named(f"inputs.{name}"):
                fixed[name] = _settled(context, connection, item)
    taken: dict[str, str] = {}
    for name, output in spec.outputs.items():
        with _named(f"outputs.{name}"):
            model_outputs.check(output)
        if output.path is not None:
            with _named(f"outputs.{name}"):
                address = _check_output(context, connection, output)
                if address in taken:
                    raise errors.JobError(
                        f"{output.path} is the place of outputs.{taken[address]} too: one would overwrite the other",
                        "Give each output its own path.",
                    )
                taken[address] = name
    # Checked above; a copy keeps what was validated.
    return spec.model_copy(update={"inputs": fixed})


def _require_reach(context: Context, spec: JobSpec, person: str | None) -> None:
    """Where several people work, nodes open only listed paths of their machine for a job."""
    people = context.tokens.people
    if not people.is_shared or person is None or people.role(person) == ADMIN:
        return
    for kind, items in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for name, item in items.items():
            if isinstance(item, Input | Output) and item.path is not None:
                require_location(parse_address(item.path), context.reach, f"{kind}.{name}")


def _settled(context: Context, connection: Connection, item: Input) -> Input:
    if is_model_input(item.path or "", item.type):
        return inputs.settled(connection, item)
    location = parse_address(item.path or "")
    if location.kind != "asset":
        try:
            store = grants.find_store(context, connection, location)
        except errors.NotFound as error:
            raise errors.NotFound(
                error.message, f"{error.hint} --input NAME=PATH gives a file or folder of yours."
            ) from error
        if store is not None:
            _check_there(context, store[0], store[1], item)
        return item
    try:
        asset = assets.find(connection, location.store, location.version)
    except errors.NotFound as error:
        if registry.list_models(connection, location.store):
            hint = "There is a model of that name: give the input `type: custom_model`."
            raise errors.NotFound(error.message, hint) from error
        raise
    fixed = str(Location("asset", store=asset.name, version=asset.version))
    return item.model_copy(update={"path": fixed, "type": asset.type})


def _check_there(context: Context, spec: StoreSpec, path: str, item: Input) -> None:
    """Check where that costs nothing; a remote store is checked when the job starts."""
    if isinstance(spec.options, WorkspaceFolder):
        root = context.files.store.local_root
        folder = root / datastores.BUILT_IN_FOLDER if root is not None else None
    else:
        folder = Path(spec.options.path) if isinstance(spec.options, LocalFolder) else None
    if folder is None:
        return
    there = folder / path
    if not there.exists():
        raise errors.NotFound(f"{item.path} does not exist (looked for {there})", _PUT_THERE)
    if item.type == "uri_file" and there.is_dir():
        raise errors.JobError(f"{item.path} is a folder", "Give it the type uri_folder.")
    if item.type == "uri_folder" and not there.is_dir():
        raise errors.JobError(f"{item.path} is a file", "Give it the type uri_file.")


def _check_output(context: Context, connection: Connection, item: Output) -> str:
    """Refuse a place that cannot be written to; returns its address in one spelling."""
    where = "Write azureml://datastores/NAME/paths/…, or leave `path` out: it is kept with the run."
    if not rules.is_address(item.path or ""):
        raise errors.JobError(f"{item.path!r} is no address that can be written to", where)
    location = parse_address(item.path or "")
    if location.kind == "local":
        return str(location)
    store = grants.find_store(context, connection, location)
    if store is None:
        raise errors.JobError(f"{item.path!r} is not in any datastore of the workspace", where)
    assets.refuse_kept(connection, store[0].name, store[1])
    return datastore_address(store[0].name, store[1])


@contextmanager
def _named(field: str) -> Iterator[None]:
    """Puts the field of the job file before an error's message."""
    try:
        yield
    except errors.MusterError as error:
        raise errors.JobError(f"{field}: {error.message}", error.hint) from error
