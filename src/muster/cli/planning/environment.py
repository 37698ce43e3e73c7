"""What `--dry-run` prints about a job's environment and data: what they resolve to, and what would be built."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.cli.text import duration
from muster.client.connect import connect
from muster.client.models import Models
from muster.client.storage import Storage
from muster.client.submit import packages_here, with_imports
from muster.environments.files import with_contents
from muster.environments.here import here
from muster.environments.images import reach
from muster.environments.needs import needs_of
from muster.environments.resolve import Resolved, Site, image_of, resolve
from muster.environments.venvs.builder import has_gpus
from muster.environments.venvs.cache import Cache
from muster.environments.venvs.interpreters import NoInterpreter, find, host_platform
from muster.environments.venvs.recipe import key_of, without_secrets
from muster.errors import JobError, MusterError, NotFound, ServerUnavailable
from muster.job import rules
from muster.job.parts import EnvironmentSpec, Input, Mpi
from muster.job.rules import SNAPSHOT, is_snapshot
from muster.job.spec import JobSpec
from muster.models import references
from muster.models.references import RunPath, is_model_input
from muster.paths import environments_dir
from muster.storage.addresses import Location, parse_address
from muster.wire.codec import Json
from muster.wire.node.recipes import Recipe

_SHOWN = 6


@dataclass(frozen=True)
class PlannedEnvironment:
    """The environment that the ranks would run in."""

    notices: tuple[str, ...] = ()
    summary: str = ""
    """One line; empty for the current Python."""


def planned(spec: JobSpec, base_dir: Path) -> PlannedEnvironment:
    """What the job's environment resolves to on this machine; raises JobError for an impossible one."""
    spec, notices = with_imports(spec, base_dir)
    described = _as_if_sent(with_contents(spec, base_dir))
    if described.environment is None:
        return PlannedEnvironment()
    if image := image_of(described.model_dump(mode="json", exclude_none=True)["environment"], _registered):
        reach.look(image)
    packages, about_packages = packages_here(spec, base_dir, sys.executable)
    site = Site(
        is_mpi=isinstance(spec.distribution, Mpi),
        has_gpus=has_gpus(),
        needs=needs_of(spec),
        packages=packages,
        registered=_registered,
        **here(sys.executable),
    )
    found = resolve(described.environment, site)
    return PlannedEnvironment((*notices, *about_packages, *found.notices), _summary(found))


def check_data(spec: JobSpec) -> list[str]:
    """Refuse missing data assets, models and datastores, where the workspace's server is running.

    Returns notices about paths that are empty now, or cannot be listed.
    """
    notices = []
    for name, value in spec.inputs.items():
        if not isinstance(value, Input) or not rules.is_address(value.path or ""):
            continue
        try:
            if notice := _look_up(value):
                notices.append(f"inputs.{name}: {notice}")
        except ServerUnavailable:
            notices.append(
                f"inputs.{name}: whether {value.path} is there is not known: the workspace's server does not run"
                " (`muster up`)"
            )
        except NotFound as error:
            hint = f"Make it with `muster data create`, or give another place: --input {name}=PATH."
            if is_model_input(value.path or "", value.type):
                hint = f"Register it with `muster model register`, or give another place: --input {name}=PATH."
            raise JobError(f"inputs.{name}: {error.message}", hint) from error
        except JobError as error:
            hint = f"{error.hint or ''} --input {name}=PATH gives a file or folder of yours.".strip()
            raise JobError(f"inputs.{name}: {error.message}", hint) from error
    return notices


def _look_up(value: Input) -> str:
    """Look up an input on the server; other addresses are only parsed. Returns a notice, or an empty text."""
    path = value.path or ""
    if is_model_input(path, value.type):
        reference = references.parse(path)
        if isinstance(reference, RunPath):
            connect(start=False).run(reference.run)
        else:
            Models(connect(start=False).calls).details(path)
        return ""
    location = parse_address(path)
    if location.kind == "asset":
        Storage(connect(start=False).calls).asset(location.store, location.version)
    if location.kind == "datastore":
        return _look_in_store(Storage(connect(start=False).calls), location)
    return ""


def _look_in_store(storage: Storage, location: Location) -> str:
    try:
        storage.datastore(location.store)
    except NotFound as error:
        # Its own hint lists the existing datastores.
        raise JobError(error.message, error.hint) from error
    try:
        holds_something = bool(storage.files(location.store, location.path, limit=1))
    except ServerUnavailable:
        raise
    except MusterError as error:
        return f"{location} could not be listed: {error.message}"
    return "" if holds_something else f"{location} holds no file now; check the path, case matters"


def _as_if_sent(spec: JobSpec) -> JobSpec:
    """The job as if the build folder of its image had been uploaded."""
    environment = spec.environment
    if not isinstance(environment, EnvironmentSpec) or environment.build is None or is_snapshot(environment.build.path):
        return spec
    build = environment.build.model_copy(update={"path": f"{SNAPSHOT}:dry-run"})
    return spec.model_copy(update={"environment": environment.model_copy(update={"build": build})})


def _registered(name: str, version: str | None) -> Mapping[str, Json] | None:
    try:
        return connect(start=False).environment(name, version).spec
    except (NotFound, ServerUnavailable):
        return None


def _summary(found: Resolved) -> str:
    if found.container is not None:
        on_top = found.container.packages
        return f"environment: the image {found.container.label}{_listed(on_top) if on_top else ''}"
    if found.recipe is None:
        return f"environment: the interpreter {found.python}" if found.python else ""
    recipe = found.recipe
    try:
        base = find(recipe.python, sys.executable)
    except NoInterpreter as error:
        raise JobError(f"environment: {error}", "Set `python` to one that is there.") from error
    cache = Cache(environments_dir())
    key = key_of(recipe, base.minor, host_platform())
    built = cache.find(key)
    if built is not None:
        return f"environment: {recipe.label}, built here already (in {duration(built.record.built_s)})"
    last_s = cache.took_s(key, recipe.label)
    took = f"; {recipe.label} took {duration(last_s)} last time" if last_s is not None else ""
    return f"environment: {recipe.label}, to be built on Python {base.text}{_listed(recipe)}{took}"


def _listed(recipe: Recipe) -> str:
    packages = [without_secrets(text) for text in (*recipe.conda, *recipe.requirements)]
    rest = len(packages) - _SHOWN
    return f" with {', '.join(packages[:_SHOWN])}" + (f" and {rest} more" if rest > 0 else "") if packages else ""
