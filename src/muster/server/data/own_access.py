"""How users' own machines reach storage: as nodes do, directly where possible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from muster import errors
from muster.control.access import GRANT, Caller
from muster.job import rules
from muster.job.parts import Input, Output
from muster.job.spec import JobSpec
from muster.server.context import Context
from muster.server.data import assets, datastores, grants
from muster.server.database.records import find_run
from muster.storage.addresses import joined, parse_address
from muster.storage.granting import DATA_ROUTE, Asked, Terms, access_of, file_token
from muster.storage.grants import covers
from muster.storage.kinds import LocalFolder, SharedFolder, StoreSpec, WorkspaceFolder
from muster.wire.data.access import READ, Access, NewAccess, OpenedAccess, Scope, folder_id


def opened(
    context: Context, connection: Connection, body: NewAccess, scope: Scope, caller: Caller, same_machine: bool
) -> OpenedAccess:
    """The caller's access to a folder; raises Conflict if files that never change would be written to."""
    if caller.role == GRANT:
        raise errors.AccessDenied("a grant opens its own files, and nothing else", "Use a token of the workspace.")
    location, _ = assets.resolve(connection, parse_address(body.address))
    store = grants.find_store(context, connection, location)
    if store is None:
        raise errors.JobError(
            f"{body.address} is not in any datastore of the workspace", "Write azureml://datastores/NAME/paths/…."
        )
    spec, path = store
    datastores.require_reach(context, spec)
    files = {name: joined(path, grants.file_path(name)) for name in body.files}
    if scope != READ:
        assets.refuse_kept(connection, spec.name, *files.values())
    terms = grants.terms(context, same_machine)
    access = _access(spec, path, scope, caller, terms, body.direct)
    tokens = {name: file_token(spec, inner, scope, terms) for name, inner in files.items()} if access.per_file else {}
    return OpenedAccess(access, tokens, _known_folder(spec, terms) if access.kind == "file" else None)


def _access(spec: StoreSpec, path: str, scope: Scope, caller: Caller, terms: Terms, direct: bool) -> Access:
    found = access_of(spec, Asked(path, scope, True, f"user/{caller.subject}"), terms)
    if direct and found.kind != "muster":
        return replace(found, manifest_by_reference=False)
    # The caller's own token says who writes, and ends with the caller's rights.
    url = f"{DATA_ROUTE}/{spec.name}/{path}".rstrip("/")
    return Access("muster", url, scope, True, found.label)


def _known_folder(spec: StoreSpec, terms: Terms) -> str | None:
    """The ID of the datastore's folder; None if it does not exist."""
    options = spec.options
    root = options.path if isinstance(options, LocalFolder | SharedFolder) else terms.own_folder
    if root is None:
        return None
    if isinstance(options, WorkspaceFolder):
        Path(root).mkdir(parents=True, exist_ok=True)
    try:
        found = Path(root).stat()
    except OSError:
        return None
    return folder_id(found.st_dev, found.st_ino)


def of_run(context: Context, connection: Connection, run_id: str, address: str) -> tuple[StoreSpec, str, str]:
    """What a rank asks for: the datastore, the path there, and that of the input or output around it."""
    location = parse_address(address)
    if location.kind != "datastore":
        raise errors.JobError(f"{address} is not a path in a datastore", "Write azureml://datastores/NAME/paths/….")
    spec = JobSpec.model_validate(find_run(connection, run_id).spec, strict=False)
    for item in (*spec.inputs.values(), *spec.outputs.values()):
        if not isinstance(item, Input | Output) or item.path is None or not rules.is_address(item.path):
            continue
        given = parse_address(item.path)
        if given.kind == "model":
            continue
        found, _ = assets.resolve(connection, given)
        if (
            found.kind == "datastore"
            and found.store == location.store
            and covers(found.path, location.path, folder=True)
        ):
            return datastores.find(context, connection, found.store), location.path, found.path
    raise errors.AccessDenied(
        f"{address} is below no input or output of the run {run_id}", "Name it, or a folder around it, as an input."
    )
