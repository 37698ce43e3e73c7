"""Environments: what a job's stands for, settled when it is submitted; registered ones; what builds came to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from muster import errors
from muster.environments import names
from muster.environments.images.failing import secret_name
from muster.environments.images.model import DEFAULT_SHM_BYTES, Container, Login, container_from_json, registry_of
from muster.environments.resolve import Resolved, Site, resolve
from muster.environments.venvs.recipe import Recipe, recipe_from_json, without_secrets
from muster.job.parts import EnvironmentSpec, Mpi
from muster.job.rules import RUN_NAME, is_snapshot
from muster.job.spec import JobSpec
from muster.launch.preflight import shm_bytes
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.nodes import clusters
from muster.server.people import secrets
from muster.wire.environments import EnvironmentBrief


def settle(
    context: Context, connection: Connection, spec: JobSpec, python: str | None, packages: Mapping[str, str] | None
) -> Resolved:
    """What the job's environment means on its cluster; raises JobError for one that cannot be."""
    if spec.environment is None:
        return Resolved()
    row = connection.execute(select(tables.clusters).where(tables.clusters.c.name == spec.compute)).first()
    nodes = clusters.offered(context, clusters.cluster_of(row)) if row is not None else []
    # The Python that submits can stand in only where the nodes are this machine, and it is on it.
    is_here = row is not None and row.engine == "local" and python is not None and os.access(python, os.X_OK)
    site = Site(
        is_mpi=isinstance(spec.distribution, Mpi),
        has_gpus=spec.resources.gpus_per_node != 0 and any(node.gpus for node in nodes),
        packages=packages if is_here else None,
        registered=lambda name, version: _find(connection, name, version),
    )
    settled = resolve(spec.environment, site)
    _check_folder(context, settled)
    return settled


def _check_folder(context: Context, settled: Resolved) -> None:
    """An image is built from a folder, which must have been sent."""
    digest = build_snapshot({"container": settled.container})
    if digest is not None and not context.snapshots.has(digest):
        hint = "Send it again: submit the job, or register the environment, where the folder is."
        raise errors.Conflict(f"the folder {digest}, from which the image is built, is not here", hint)


def record_of(resolved: Resolved) -> dict[str, Any] | None:
    """What is kept with the run; None where nothing is built."""
    if resolved.container is not None:
        image = resolved.container.get("image") or container_from_json(resolved.container).label
        return {"name": resolved.name or image, "container": dict(resolved.container)}
    if resolved.recipe is None:
        return None
    return {"name": resolved.name or resolved.recipe.label, "recipe": resolved.recipe.to_json()}


def order_of(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The recipe that a node is to build, with the versions that an earlier attempt ran with."""
    if record is None or "container" in record:
        return None
    recipe: Recipe = recipe_from_json(record["recipe"])
    return recipe.locked(record.get("lock", ())).to_json()


def container_of(
    context: Context, connection: Connection, record: Mapping[str, Any] | None, spec: JobSpec
) -> Container | None:
    """The container that a node is to start, with the credentials of its registry; None where there is none."""
    if record is None or "container" not in record:
        return None
    push_to = os.environ.get("MUSTER_IMAGE_REGISTRY", "").rstrip("/")
    made = replace(
        container_from_json(record["container"]),
        args=tuple(spec.resources.container_args),
        shm_bytes=shm_bytes(spec.resources.shm_size) or DEFAULT_SHM_BYTES,
    )
    if made.packages is not None:
        made = replace(made, packages=recipe_from_json(made.packages).locked(record.get("lock", ())).to_json())
    if made.build is not None or made.packages is not None:
        made = replace(made, push_to=push_to)
    push_registry = registry_of(made.made("")) if push_to else ""
    pull_registry = registry_of(made.reference)
    return replace(
        made,
        login=_login(context, connection, pull_registry),
        push_login=_login(context, connection, push_registry) if push_registry != pull_registry else None,
    )


def _login(context: Context, connection: Connection, registry: str) -> Login | None:
    """The credentials of a registry, where somebody keeps them as a secret."""
    name = secret_name(registry)
    if name not in {row.name for row in secrets.listing(connection)}:
        return None
    username, _, password = secrets.values(context, connection, [name])[name].partition(":")
    return Login(registry, username, password)


def build_snapshot(record: Mapping[str, Any] | None) -> str | None:
    """The folder that a run's image is built from."""
    found = ((record or {}).get("container") or {}).get("build") or {}
    return found.get("snapshot")


def with_versions(record: Mapping[str, Any] | None, told: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record with what the first node's environment came to; later ones were given the same versions."""
    if record is None or "lock" in record:
        return dict(record) if record is not None else None
    kept = ("key", "python", "platform", "lock", "indexes", "image")
    return {**record, **{key: told[key] for key in kept if key in told}}


def agree(
    transaction: Transaction, run_id: str, record: Mapping[str, Any] | None, told: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the gang's nodes keep to, settled by the first of them that came to something; empty where none did."""
    if record is not None and told is not None and "lock" not in record:
        record = with_versions(record, told)
        transaction.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(environment=record))
    return {key: (record or {})[key] for key in ("python", "platform", "lock") if key in (record or {})}


def shown(record: Mapping[str, Any]) -> dict[str, Any]:
    """The whole record, without the passwords that addresses may hold."""
    if "recipe" in record:
        return {**record, "recipe": _without_secrets(record["recipe"])}
    container = record["container"]
    if "packages" not in container:
        return dict(record)
    return {**record, "container": {**container, "packages": _without_secrets(container["packages"])}}


def shown_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A job as it was submitted, without the passwords that addresses in its environment may hold."""
    return {**spec, "environment": _masked(spec.get("environment"))}


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return {key: _masked(item) for key, item in value.items()} if isinstance(value, dict) else value


def _without_secrets(recipe: Mapping[str, Any]) -> dict[str, Any]:
    options = [without_secrets(text) for text in recipe.get("options", ())]
    return {**recipe, "options": options} if options else dict(recipe)


def brief(record: Mapping[str, Any] | None) -> EnvironmentBrief | None:
    """What a run's view says of its environment: all but the long lists."""
    if record is None:
        return None
    known = {key: record[key] for key in ("name", "key", "python", "image") if key in record}
    return EnvironmentBrief(len(record.get("lock", ())), **known)


def registered_folders(connection: Connection) -> set[str]:
    """The folders that images of registered environments are built from."""
    specs = connection.execute(select(tables.environments.c.spec)).scalars()
    paths = [str(spec["build"]["path"]) for spec in specs if "build" in spec]
    return {path.partition(":")[2] for path in paths if is_snapshot(path)}


def register(context: Context, transaction: Transaction, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the next version of an environment; the same content again is the same version."""
    if not RUN_NAME.fullmatch(name):
        hint = "Use letters, digits, '_', '.' and '-', at most 255, a letter or digit first."
        raise errors.JobError(f"{name!r} cannot be the name of an environment", hint)
    if names.meaning(name, False) is not None and name in names.CURATED:
        raise errors.Conflict(f"{name} is the name of a curated environment", "Choose another name.")
    described = EnvironmentSpec.model_validate({"name": name, **spec})
    _check_folder(context, resolve(described, Site()))
    content = described.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    environments = tables.environments
    last = _find_row(transaction.connection, name, None)
    if last is not None and last.spec == content:
        return dict(last._mapping)
    row = {"name": name, "version": last.version + 1 if last else 1, "spec": content, "created_at": time.time()}
    transaction.execute(insert(environments).values(**row))
    return row


def list_all(connection: Connection) -> list[dict[str, Any]]:
    """Registered environments, each in its newest version."""
    environments = tables.environments
    newest = select(environments.c.name, func.max(environments.c.version).label("version")).group_by(
        environments.c.name
    )
    found = newest.subquery()
    query = (
        select(environments)
        .join(found, (environments.c.name == found.c.name) & (environments.c.version == found.c.version))
        .order_by(environments.c.name)
    )
    return [dict(row._mapping) for row in connection.execute(query)]


def show(connection: Connection, name: str, version: str | None) -> dict[str, Any]:
    row = _find_row(connection, name, version)
    if row is None:
        wanted = f"{name}:{version}" if version else name
        raise errors.NotFound(f"there is no environment {wanted!r}", "`muster env list` shows what there is.")
    return dict(row._mapping)


def _find(connection: Connection, name: str, version: str | None) -> Mapping[str, Any] | None:
    row = _find_row(connection, name, version)
    return row.spec if row is not None else None


def _find_row(connection: Connection, name: str, version: str | None) -> Any:
    environments = tables.environments
    query = select(environments).where(environments.c.name == name).order_by(environments.c.version.desc())
    if version is not None and version.isdigit():
        query = query.where(environments.c.version == int(version))
    return connection.execute(query.limit(1)).first()
