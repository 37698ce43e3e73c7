"""Grants with which runs and users reach datastores: made, checked, renewed and revoked."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from sqlalchemy import Connection, insert, select, update

from muster import errors
from muster.clusters.options import parse_options
from muster.control.access import Action, Caller, require
from muster.defaults import GRANT_CHECK_S, GRANT_S
from muster.job import rules
from muster.job.parts import Input, Output
from muster.job.spec import JobSpec
from muster.server.context import Context
from muster.server.data import assets, datastores
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of
from muster.server.models import registry
from muster.storage.addresses import Location, joined, parse_address, safe_path
from muster.storage.granting import DATA_ROUTE, Asked, Terms, access_of, file_token, signed
from muster.storage.grants import Grant, new_id, sign, verify
from muster.storage.kinds import BlobContainer, SharedFolder, StoreSpec
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.data.access import (
    INLINE_FILES,
    READ,
    WRITE,
    Access,
    FileEntry,
    FileList,
    GrantBrief,
    GrantView,
    IssuedGrant,
    NewGrant,
)
from muster.wire.models import ModelView
from muster.wire.node.agents import InputOrder, OutputOrder
from muster.wire.node.requests import FreshGrants

_FOLDERS = ("uri_folder", "mltable", "custom_model", "mlflow_model", "triton_model")


@dataclass(frozen=True)
class Holder:
    """The holder of grants: one attempt, on nodes of one kind."""

    run: str
    attempt: int
    same_machine: bool
    """Its nodes see the folders of the server's machine."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """By file server: the name under which the nodes mount it."""

    @property
    def subject(self) -> str:
        return f"run/{self.run}/{self.attempt}"


def attempt_of(context: Context, connection: Connection, node: str, run: str, attempt: int) -> tuple[Holder, JobSpec]:
    """An attempt's job, if it is open on the node."""
    placements, clusters = tables.placements, tables.clusters
    row = connection.execute(
        select(tables.runs.c.spec, placements.c.phase, clusters.c.engine, clusters.c.options)
        .join(placements, placements.c.run_id == tables.runs.c.id)
        .outerjoin(clusters, clusters.c.name == placements.c.cluster)
        .where(tables.runs.c.id == run, placements.c.number == attempt, placements.c.node == node)
    ).first()
    if row is None or row.phase not in states.IS_OPEN:
        raise errors.AccessDenied(f"attempt {attempt} of {run} is not on {node}, or it is over")
    same_machine = context.nodes.engines.on_this_machine(row.engine)
    return Holder(run, attempt, same_machine, mounted(row.options)), JobSpec.model_validate(row.spec, strict=False)


def mounted(options: Mapping[str, Json] | None) -> dict[str, str]:
    """By file server: the name under which the nodes of a cluster mount it."""
    found = parse_options(options or {}).mounts
    return {mount.file_server: mount.target for mount in found if mount.file_server is not None}


def input_of(spec: JobSpec, name: str) -> Input:
    """One input of a job that is a file or folder."""
    item = spec.inputs.get(name)
    if not isinstance(item, Input) or item.path is None:
        raise errors.NotFound(f"the run has no input {name!r} that is a file or folder")
    return item


def input_orders(
    context: Context, connection: Connection, spec: JobSpec, holder: Holder, shared: bool = False
) -> tuple[InputOrder, ...]:
    """The inputs of a run in its nodes' orders, each with the access that it needs."""
    orders = []
    for name, item in spec.inputs.items():
        if isinstance(item, Input) and item.path is not None:
            access = _or_refused(partial(input_access, context, connection, item, holder))
            own_cache = shared and holder.same_machine
            orders.append(InputOrder(name, item.path, item.mode, item.type, access, shared, own_cache))
    return tuple(orders)


def output_orders(context: Context, connection: Connection, spec: JobSpec, holder: Holder) -> tuple[OutputOrder, ...]:
    orders = []
    for name, item in spec.outputs.items():
        access = _or_refused(partial(output_access, context, connection, item, holder))
        orders.append(OutputOrder(name, item.mode, item.type, access))
    return tuple(orders)


def input_access(context: Context, connection: Connection, item: Input, holder: Holder) -> Access | None:
    """The access to an input; None for a path that the node reads itself."""
    assert item.path is not None
    if not rules.is_address(item.path):
        return None
    if (model := model_of(connection, item.path)) is not None:
        return _model_access(context, connection, model, item, holder)
    location, asset = assets.resolve(connection, parse_address(item.path))
    folder = item.type in _FOLDERS
    access = _access(context, connection, location, Asked("", READ, folder, holder.subject), holder)
    label = item.path if item.mode != "direct" else _handed_out(context, connection, location, access)
    if asset is None:
        return replace(access, label=label)
    access = replace(access, label=label, asset=f"{asset.name}:{asset.version}")
    if access.per_file or asset.num_files > INLINE_FILES:
        return replace(access, manifest_by_reference=True)
    return replace(access, manifest=assets.files(connection, asset), manifest_by_reference=False)


def _handed_out(context: Context, connection: Connection, location: Location, access: Access) -> str:
    """What a job gets for an input in mode `direct`: an address, even on this machine; for a share its path."""
    store = find_store(context, connection, location)
    is_path = access.kind == "file" and (store is None or isinstance(store[0].options, SharedFolder))
    return access.url if is_path else str(location)


def model_of(connection: Connection, address: str) -> ModelView | None:
    """The model version that an input names; None if it is data."""
    location = parse_address(address)
    if location.kind != "model" or location.version is None:
        return None
    return registry.find_model(connection, location.store, int(location.version))


def _model_access(context: Context, connection: Connection, model: ModelView, item: Input, holder: Holder) -> Access:
    """The access to a model, in the same way as to a data asset."""
    if model.address is None or model.num_files is None:
        raise errors.Conflict(f"the bytes of {item.path} have no place yet", "Submit the job again.")
    asked = Asked("", READ, item.type in _FOLDERS, holder.subject)
    access = _access(context, connection, parse_address(model.address), asked, holder)
    access = replace(access, label=item.path or "", asset=f"models:/{model.name}/{model.version}")
    if access.per_file or model.num_files > INLINE_FILES:
        return replace(access, manifest_by_reference=True)
    return replace(access, manifest=registry.files(connection, model), manifest_by_reference=False)


def output_access(context: Context, connection: Connection, item: Output, holder: Holder) -> Access | None:
    if item.path is None or not rules.is_address(item.path):
        return None
    asked = Asked("", WRITE, item.type in _FOLDERS, holder.subject)
    access = _access(context, connection, parse_address(item.path), asked, holder)
    return replace(access, label=item.path)


def _access(context: Context, connection: Connection, location: Location, asked: Asked, holder: Holder) -> Access:
    store = find_store(context, connection, location)
    if store is not None:
        spec, path = store
        if isinstance(spec.options, SharedFolder) and spec.name in holder.mounts:
            return Access("file", path, asked.scope, asked.folder, mount=holder.mounts[spec.name])
        return access_of(spec, replace(asked, path=path), terms(context, holder.same_machine))
    if location.kind == "local":
        return Access("file", location.path, asked.scope, asked.folder)
    if location.kind == "azure-blob":
        listed = asked.folder and asked.scope == READ
        return Access("azure-blob", str(location), asked.scope, asked.folder, manifest_by_reference=listed)
    kind = "http" if location.kind == "http" and not asked.folder else "fsspec"
    return Access(kind, location.url, asked.scope, asked.folder)


def find_store(context: Context, connection: Connection, location: Location) -> tuple[StoreSpec, str] | None:
    """The datastore that a location lies in, and the path there; None if it is in none."""
    if location.kind == "datastore":
        return datastores.find(context, connection, location.store), location.path
    return datastores.matching(context, connection, location) if location.kind == "azure-blob" else None


def manifest(context: Context, connection: Connection, item: Input, holder: Holder) -> FileList:
    """The files of an input, with a token for each where the store signs file by file."""
    assert item.path is not None
    model = model_of(connection, item.path)
    location, asset = assets.resolve(connection, parse_address(model.address or "" if model else item.path))
    access = input_access(context, connection, item, holder)
    store = find_store(context, connection, location) or public_store(location)
    if access is None or store is None:
        raise errors.JobError(f"{item.path} is read by the node itself", "There is no list of it here.")
    spec, path = store
    found: Iterable[FileEntry]
    if model is not None:
        found = registry.files(connection, model)
    else:
        found = assets.files(connection, asset) if asset else listing(context, spec, path, item.path, access.folder)
    return FileList(tuple(signed(access, spec, path, found, terms(context, holder.same_machine))))


def listing(context: Context, spec: StoreSpec, path: str, label: str, folder: bool) -> list[FileEntry]:
    """The files at a path of a datastore; raises NotFound if there are none."""
    datastore = datastores.open_store(context, spec)
    if folder:
        found = list(datastore.entries(path))
    else:
        one = datastore.entry(path)
        found = [one] if one is not None else []
    if found:
        return found
    if folder and path and datastore.entry(path) is not None:
        raise errors.JobError(f"{label} is a file", "Give it the type uri_file.")
    raise errors.NotFound(f"{label}: there is no {'file below it' if folder else 'such file'}", "Check the path.")


def with_files(access: Access, files: tuple[FileEntry, ...]) -> Access:
    """An access together with the list of its files."""
    return replace(access, manifest=files, manifest_by_reference=False)


def renew(
    context: Context, connection: Connection, spec: JobSpec, holder: Holder, paths: Mapping[str, Sequence[str]]
) -> FreshGrants:
    """Fresh accesses of a run, and tokens for the files that it is about to write."""
    outputs = output_orders(context, connection, spec, holder)
    tokens: dict[str, dict[str, str]] = {}
    for name, wanted in paths.items():
        item = spec.outputs.get(name)
        if item is None or item.path is None:
            raise errors.NotFound(f"the run has no output {name!r} that goes to a datastore")
        store = find_store(context, connection, parse_address(item.path))
        access = output_access(context, connection, item, holder)
        if store is None or access is None or not access.per_file:
            raise errors.JobError(f"the output {name} needs no token for each file", "Use its access.")
        at = terms(context, holder.same_machine)
        tokens[name] = {path: file_token(store[0], joined(store[1], file_path(path)), WRITE, at) for path in wanted}
    return FreshGrants(
        {item.name: item.access for item in input_orders(context, connection, spec, holder) if item.access},
        {item.name: item.access for item in outputs if item.access},
        tokens,
    )


def read_subnet(config: object) -> ipaddress.IPv4Network | None:
    """The key `grants` of workspace.json: `{"subnet": "10.0.0.0/16"}`; None: grants are valid from anywhere."""
    if config is None:
        return None
    try:
        if not isinstance(config, dict) or set(config) != {"subnet"}:
            raise ValueError
        return ipaddress.IPv4Network(str(config["subnet"]))
    except ValueError:
        raise errors.UserError(
            f"`grants` in workspace.json is {config!r}.", 'It takes a subnet: {"subnet": "10.0.0.0/16"}.'
        ) from None


def check_source(context: Context, client: Sequence[object] | None) -> None:
    """Refuse a grant that is used from outside its subnet; this machine is always allowed."""
    subnet = context.grants_subnet
    if subnet is None or not client or not client[0]:
        return
    try:
        address = ipaddress.ip_address(str(client[0]))
    except ValueError:
        address = None
    mapped = getattr(address, "ipv4_mapped", None) or address
    if not isinstance(mapped, ipaddress.IPv4Address) or (mapped not in subnet and not mapped.is_loopback):
        raise errors.AccessDenied(f"grants open from {subnet}, and this call comes from {client[0]}")


def admit(context: Context, token: str) -> Grant:
    """The grant behind a token, if it is still valid; raises AccessDenied."""
    now = time.time()
    grant = _verified(context, token, now)
    kept = context.data.grants_checked.get(grant.id)
    if kept is None or now - kept > GRANT_CHECK_S:
        context.database.read_now(lambda c: _check_standing(c, grant))
        if len(context.data.grants_checked) > 10_000:
            context.data.grants_checked.clear()
        context.data.grants_checked[grant.id] = now
    return grant


def _verified(context: Context, token: str, now: float) -> Grant:
    """Grants made before the workspace's key was changed stay valid until the server ends."""
    first, *older = context.vault.grant_keys
    for key in older:
        with suppress(errors.AccessDenied):
            return verify(token, key, now)
    return verify(token, first, now)


def _check_standing(connection: Connection, grant: Grant) -> None:
    """Refuse a grant that was revoked, or whose attempt is over."""
    kind, _, rest = grant.subject.partition("/")
    if kind == "run":
        run, _, number = rest.rpartition("/")
        placements = tables.placements
        open_here = connection.execute(
            select(placements.c.node).where(
                placements.c.run_id == run, placements.c.number == int(number), placements.c.phase.in_(states.IS_OPEN)
            )
        ).first()
        if open_here is None:
            raise errors.AccessDenied(f"the grant was made for attempt {number} of {run}, which is over")
        return
    row = connection.execute(select(tables.grants).where(tables.grants.c.id == grant.id)).first()
    if row is None or row.revoked_at is not None:
        raise errors.AccessDenied("the grant was revoked", "Ask for a new one.")


def issue(context: Context, transaction: Transaction, body: NewGrant, user: str) -> IssuedGrant:
    """Issue a grant for somebody who has no token of the workspace: bytes go through the server."""
    store = find_store(context, transaction.connection, parse_address(body.address))
    if store is None:
        raise errors.JobError(f"{body.address} is not in any datastore of the workspace", "Register one first.")
    now, subject = time.time(), f"user/{user}"
    grant = Grant(new_id(), store[0].name, store[1], body.folder, body.scope, now, now + body.lifetime_s, subject)
    brief = GrantBrief(grant.id, grant.store, grant.path, grant.scope, subject, now, grant.expires_at)
    transaction.execute(insert(tables.grants).values(**vars(brief)))
    url = f"{DATA_ROUTE}/{grant.store}/{grant.path}".rstrip("/")
    return IssuedGrant(**vars(brief), url=url, token=sign(grant, context.vault.grant_key))


def revoke(context: Context, transaction: Transaction, grant_id: str, caller: Caller) -> None:
    table = tables.grants
    subject = transaction.execute(select(table.c.subject).where(table.c.id == grant_id)).scalar()
    if subject is not None:
        require(caller, Action.REVOKE_GRANT, subject.removeprefix("user/"), f"the grant {grant_id}")
    done = transaction.execute(
        update(table).where(table.c.id == grant_id, table.c.revoked_at.is_(None)).values(revoked_at=time.time())
    )
    if not done.rowcount:
        raise errors.NotFound(f"there is no grant {grant_id!r} that could be revoked")
    transaction.after_commit.append(context.data.grants_checked.clear)


def standing(connection: Connection) -> list[GrantView]:
    """Grants of people that are still valid."""
    table = tables.grants
    rows = connection.execute(
        select(table).where(table.c.revoked_at.is_(None), table.c.expires_at > time.time()).order_by(table.c.expires_at)
    )
    return [message_of(GrantView, row) for row in rows]


def terms(context: Context, same_machine: bool) -> Terms:
    """The terms of the grants that are made now."""
    local = context.files.store.local_root
    own = str(local / datastores.BUILT_IN_FOLDER) if local is not None and not context.files.store.encrypted else None
    subnet = context.grants_subnet
    addresses = f"{subnet[0]}-{subnet[-1]}" if subnet is not None else ""
    return Terms(context.vault.grant_key, time.time(), GRANT_S, same_machine, own, addresses)


def public_store(location: Location) -> tuple[StoreSpec, str] | None:
    if location.kind != "azure-blob":
        return None
    options = BlobContainer(location.account, location.store, location.endpoint)
    return StoreSpec(str(location), options), location.path


def file_path(path: str) -> str:
    """The path of a file below a folder; raises JobError if it is not one."""
    inner = safe_path(path)
    if not inner:
        raise errors.JobError("an empty path cannot be written to", "Name the file.")
    return inner


def refused_input(name: str, error: errors.MusterError) -> InputOrder:
    """An input that keeps an attempt from starting, with the reason for its verdict."""
    return InputOrder(name, "", "download", "uri_file", _refused(error))


def _refused(error: errors.MusterError) -> Access:
    return Access("refused", "", options={"message": error.message, "next": error.hint or ""})


def _or_refused(make: Callable[[], Access | None]) -> Access | None:
    """A failure of one input or output must not hold back the node's other orders."""
    try:
        return make()
    except errors.MusterError as error:
        return _refused(error)
