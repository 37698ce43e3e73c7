"""Environments: a job's, resolved when it is submitted; registered ones; the results of builds."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from muster import errors
from muster.defaults import SHM_BYTES
from muster.environments import names
from muster.environments.here import here
from muster.environments.images import reach
from muster.environments.images.registries import registry_of, secret_name
from muster.environments.needs import needs_of
from muster.environments.resolve import Resolved, Site, image_of, resolve
from muster.environments.venvs.recipe import without_secrets
from muster.job.explain import make_environment
from muster.job.parts import Mpi
from muster.job.rules import RUN_NAME, is_snapshot
from muster.job.spec import JobSpec
from muster.launch.preflight import shm_bytes
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import message_of
from muster.server.nodes import clusters
from muster.server.people import secrets
from muster.wire.codec import Json, from_json, to_json
from muster.wire.environments import (
    AgreedVersions,
    BuiltEnvironment,
    EnvironmentBrief,
    EnvironmentView,
    RunEnvironment,
)
from muster.wire.node.containers import Container, ImageSource, Login
from muster.wire.node.recipes import Recipe

_VERSIONS = ("key", "python", "platform", "lock", "indexes", "image")
"""The part of a node's build that is recorded with the run."""


def settle(
    context: Context, connection: Connection, spec: JobSpec, python: str | None, packages: Mapping[str, str] | None
) -> Resolved:
    """The job's environment on its cluster; raises JobError for one that is impossible there."""
    if spec.environment is None:
        return Resolved()
    row = connection.execute(select(tables.clusters).where(tables.clusters.c.name == spec.compute)).first()
    nodes = clusters.offered(context, clusters.cluster_of(row)) if row is not None else []
    # The Python that submits can stand in only where the nodes are this machine and it is installed here.
    on_this_machine = row is not None and context.nodes.engines.on_this_machine(row.engine)
    is_here = on_this_machine and python is not None and os.access(python, os.X_OK)
    known = here(python) if on_this_machine else None
    site = Site(
        is_mpi=isinstance(spec.distribution, Mpi),
        has_gpus=spec.resources.gpus_per_node != 0 and any(node.gpus for node in nodes),
        needs=needs_of(spec),
        packages=packages if is_here else None,
        registered=lambda name, version: _find(connection, name, version),
    )
    if known is not None:
        site = replace(site, **known)
    settled = resolve(spec.environment, site)
    _check_folder(context, settled)
    return settled


async def look_at_images(context: Context, specs: Iterable[Mapping[str, Json]]) -> None:
    """Check whether the images of jobs are available on this machine, for `settle`."""
    wanted = [spec.get("environment") for spec in specs]
    images = await context.database.read(lambda c: {image_of(item, partial(_find, c)) for item in wanted})
    for image in images - {""}:
        await asyncio.to_thread(reach.look, image)


def _check_folder(context: Context, settled: Resolved) -> None:
    """An image is built from a folder, which must have been uploaded."""
    digest = _build_snapshot(settled.container)
    if digest is not None and not context.files.snapshots.has(digest):
        hint = "Send it again: submit the job, or register the environment, where the folder is."
        raise errors.Conflict(f"the folder {digest}, from which the image is built, is not here", hint)


def record_of(resolved: Resolved) -> Json:
    """The record that is kept with the run; None where nothing is built."""
    made = resolved.container or resolved.recipe
    if made is None:
        return None
    recipe = None if resolved.container else resolved.recipe
    return _written(RunEnvironment(resolved.name or made.label, recipe=recipe, container=resolved.container))


def order_of(stored: Json) -> Recipe | None:
    """The recipe that a node builds, with the versions that an earlier attempt ran with."""
    record = _read(stored)
    if record is None or record.recipe is None:
        return None
    return record.recipe.locked(record.lock or ())


def container_of(
    context: Context, connection: Connection, stored: Json, spec: JobSpec, person: str | None
) -> Container | None:
    """The container that a node starts, with the credentials of its registry; None where there is none."""
    record = _read(stored)
    if record is None or record.container is None:
        return None
    source, push_to = record.container, os.environ.get("MUSTER_IMAGE_REGISTRY", "").rstrip("/")
    is_made = source.build is not None or source.packages is not None
    made = Container(
        source.image,
        source.build,
        source.packages.locked(record.lock or ()) if source.packages else None,
        args=tuple(spec.resources.container_args),
        shm_bytes=shm_bytes(spec.resources.shm_size) or SHM_BYTES,
        push_to=push_to if is_made else "",
    )
    push_registry = registry_of(made.made("")) if push_to else ""
    pull_registry = registry_of(made.reference)
    return replace(
        made,
        login=_login(context, connection, pull_registry, person),
        push_login=_login(context, connection, push_registry, person) if push_registry != pull_registry else None,
    )


def _login(context: Context, connection: Connection, registry: str, person: str | None) -> Login | None:
    """The credentials of a registry, from a secret that the run's owner may use."""
    name = secret_name(registry)
    if name not in {row.name for row in secrets.listing(connection)}:
        return None
    try:
        value = secrets.values(context, connection, [name], person)[name]
    except errors.AccessDenied:
        return None
    username, _, password = value.partition(":")
    return Login(registry, username, password)


def build_snapshot(stored: Json) -> str | None:
    """The folder that a run's image is built from."""
    record = _read(stored)
    return _build_snapshot(record.container) if record else None


def _build_snapshot(container: ImageSource | None) -> str | None:
    return container.build.snapshot if container and container.build else None


def with_versions(stored: Json, built: BuiltEnvironment) -> Json:
    """The record with the versions that the first node resolved; later nodes were given the same ones."""
    record = _read(stored)
    if record is None or record.lock is not None:
        return stored
    known = {name: value for name in _VERSIONS if (value := getattr(built, name)) is not None}
    return _written(replace(record, **known))


def agree(transaction: Transaction, run_id: str, stored: Json, built: BuiltEnvironment | None) -> AgreedVersions:
    """The versions that the gang's nodes use, resolved by the first that built; empty before that."""
    record = _read(stored)
    if record is not None and built is not None and record.lock is None:
        stored = with_versions(stored, built)
        transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(environment=stored))
        record = _read(stored)
    return AgreedVersions(record.python, record.platform, record.lock) if record else AgreedVersions()


def shown(stored: Json) -> RunEnvironment:
    """The whole record, without the passwords that addresses may hold."""
    record = from_json(RunEnvironment, stored)
    if record.recipe is not None:
        return replace(record, recipe=_without_secrets(record.recipe))
    if record.container is None or record.container.packages is None:
        return record
    return replace(record, container=replace(record.container, packages=_without_secrets(record.container.packages)))


def shown_spec(spec: Mapping[str, Json]) -> dict[str, Json]:
    """A job as it was submitted, without the passwords that addresses in its environment may hold."""
    return {**spec, "environment": _masked(spec.get("environment"))}


def _masked(value: Json) -> Json:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _without_secrets(recipe: Recipe) -> Recipe:
    return replace(recipe, options=tuple(without_secrets(text) for text in recipe.options))


def brief(stored: Json) -> EnvironmentBrief | None:
    """The environment as a run's view shows it: all but the long lists."""
    record = _read(stored)
    if record is None:
        return None
    return EnvironmentBrief(len(record.lock or ()), record.name, record.key, record.python, record.image)


def _read(stored: Json) -> RunEnvironment | None:
    return None if stored is None else from_json(RunEnvironment, stored)


def _written(record: RunEnvironment) -> Json:
    stored: Json = to_json(record)
    return stored


def registered_folders(connection: Connection) -> set[str]:
    """The folders that images of registered environments are built from."""
    specs = connection.execute(select(tables.environments.c.spec)).scalars()
    paths = [str(spec["build"]["path"]) for spec in specs if "build" in spec]
    return {path.partition(":")[2] for path in paths if is_snapshot(path)}


def register(context: Context, transaction: Transaction, name: str, spec: Mapping[str, Json]) -> EnvironmentView:
    """Keep the next version of an environment; the same content again gets no new version."""
    if not RUN_NAME.fullmatch(name):
        hint = "Use letters, digits, '_', '.' and '-', at most 255, a letter or digit first."
        raise errors.JobError(f"{name!r} cannot be the name of an environment", hint)
    if name in names.CURATED:
        raise errors.Conflict(f"{name} is the name of a curated environment", "Choose another name.")
    described = make_environment(name, spec)
    _check_folder(context, resolve(described, Site()))
    content = described.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    last = _find_row(transaction.connection, name, None)
    if last is not None and last.spec == content:
        return message_of(EnvironmentView, last)
    made = EnvironmentView(name, last.version + 1 if last else 1, content, time.time())
    transaction.execute(insert(tables.environments).values(**to_json(made)))
    return made


def list_all(connection: Connection) -> list[EnvironmentView]:
    """Registered environments, each in its newest version."""
    environments = tables.environments
    rows = connection.execute(select(environments).order_by(environments.c.name, environments.c.version))
    newest = {row.name: row for row in rows}
    return [message_of(EnvironmentView, row) for row in newest.values()]


def show(connection: Connection, name: str, version: str | None) -> EnvironmentView:
    row = _find_row(connection, name, version)
    if row is None:
        wanted = f"{name}:{version}" if version else name
        raise errors.NotFound(f"there is no environment {wanted!r}", "`muster env list` shows what there is.")
    return message_of(EnvironmentView, row)


def _find(connection: Connection, name: str, version: str | None) -> Mapping[str, Json] | None:
    row = _find_row(connection, name, version)
    return row.spec if row is not None else None


def _find_row(connection: Connection, name: str, version: str | None) -> Row[Any] | None:
    environments = tables.environments
    query = select(environments).where(environments.c.name == name).order_by(environments.c.version.desc())
    if version is not None and version.isdigit():
        query = query.where(environments.c.version == int(version))
    return connection.execute(query.limit(1)).first()
