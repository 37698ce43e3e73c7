"""Environments: `muster env …`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from muster.cli.console import Paint, columns, say
from muster.cli.images import Image, images_here
from muster.cli.options import Json, argument, option, print_result, switch
from muster.cli.text import counted, duration, size
from muster.cli.views.environment import (
    BuiltView,
    CuratedView,
    EnvironmentDescription,
    EnvironmentList,
    ImageView,
    LockedView,
    description,
    listing,
)
from muster.client.connect import connect, connect_to_read
from muster.client.submit import register_environment
from muster.environments.catalogue import load_all
from muster.environments.condafile import conda_text
from muster.environments.failures import Failure
from muster.environments.files import with_contents
from muster.environments.limits import limit_bytes
from muster.environments.resolve import Resolved, Site, resolve
from muster.environments.venvs.builder import Progress, ensure, has_gpus
from muster.environments.venvs.cache import Built, Cache
from muster.environments.venvs.interpreters import Interpreter, NoInterpreter, find, host_platform
from muster.environments.venvs.recipe import key_of, without_secrets
from muster.errors import Conflict, NotFound, ServerUnavailable, UserError
from muster.job.azure import settle
from muster.job.environmentfile import environment_of
from muster.job.explain import make_spec
from muster.job.jobfile import load_job_file
from muster.job.parts import Mpi
from muster.job.spec import JobSpec
from muster.paths import environments_dir
from muster.wire.codec import Json as Value
from muster.wire.environments import EnvironmentView
from muster.wire.node.recipes import Recipe

NAME_HELP = "A curated or registered name, a conda file (.yml), a requirements file (.txt), or a job file."

_KEY = re.compile(r"py\d+\.\d+-[0-9a-f]{3,}")

Name = Annotated[str, argument("NAME|FILE", NAME_HELP)]


def list_(as_json: Json = False) -> None:
    """List curated and registered environments, and what is built on this machine, images included.

    \b
    Examples:
      muster env list
      muster env list --json
    """
    cache = _cache()
    found = EnvironmentList(
        curated=tuple(CuratedView(entry.name, entry.description) for entry in load_all()),
        registered=tuple(_registered()),
        built=tuple(_built_view(item, cache) for item in cache.entries()),
        folder=str(cache.root),
        images=tuple(map(_image_view, images_here())),
    )
    print_result(found, listing(found, Paint.of(sys.stdout), time.time(), columns(sys.stdout)), as_json)


def show(
    name: Annotated[str, argument("NAME", "A name, a file, or the key of a built one.")], as_json: Json = False
) -> None:
    """Show what an environment is made of, and its exact versions where it is built here.

    \b
    Examples:
      muster env show pytorch
      muster env show pytorch-gpu --json
    """
    cache = _cache()
    built = _built(name, cache)
    notices: tuple[str, ...] = ()
    if built is not None:
        shown = built.record.recipe
    else:
        resolved = _resolved(name)
        if resolved.container is not None:
            _show_image(name, resolved, as_json)
            return
        recipe, notices = _recipe_of(name, resolved)
        built = cache.find(_key(recipe)[0])
        shown = _without_secrets(recipe)
    locked = LockedView(**vars(_built_view(built, cache)), lock=tuple(built.record.lock)) if built else None
    found = EnvironmentDescription(shown.label, notices, shown, locked)
    print_result(found, description(found, Paint.of(sys.stdout), time.time()), as_json)


def _without_secrets(recipe: Recipe) -> Recipe:
    return replace(recipe, options=tuple(map(without_secrets, recipe.options)))


def _show_image(name: str, resolved: Resolved, as_json: bool) -> None:
    container = resolved.container
    assert container is not None
    if container.packages is not None:
        container = replace(container, packages=_without_secrets(container.packages))
    build, packages = container.build, container.packages or Recipe()
    lines = [Paint.of(sys.stdout)(resolved.name or name, "bold"), *(f"  notice: {text}" for text in resolved.notices)]
    lines.append(f"  image built from {build.dockerfile}" if build else f"  image {container.image}")
    on_top = [*packages.conda, *packages.requirements, *packages.options]
    found = {"name": resolved.name, "notices": list(resolved.notices), "container": container}
    print_result(found, [*lines, *(f"  + {text}" for text in on_top)], as_json)


def build(
    name: Name,
    python: Annotated[str | None, option("VERSION|PATH", "The Python to build on (default: this one).")] = None,
    as_json: Json = False,
) -> None:
    """Build an environment on this machine, so that the first job that uses it does not wait.

    \b
    Examples:
      muster env build environment.yml
      muster env build requirements.txt
    """
    recipe, notices = _recipe_of(name, _resolved(name))
    for text in notices:
        say(f"notice: {text}")
    recipe = replace(recipe, python=python) if python else recipe
    cache = _cache()
    key, base = _key(recipe)
    began = time.monotonic()
    cached = cache.find(key) is not None
    try:
        built = ensure(recipe, key, base, cache, Progress(write=say))
    except Failure as failure:
        raise UserError(f"{recipe.label} could not be built: {failure.message}", failure.next, failure.code) from None
    took = "was there already" if cached else f"built in {duration(time.monotonic() - began)}"
    line = f"{built.key}  {took}  {counted(len(built.record.lock), 'package')}  {size(built.size)}"
    print_result(_built_view(built, cache), [line], as_json)
    if not as_json:
        say(use_of(name))


def use_of(name: str) -> str:
    """How a job uses an environment that was built."""
    path = Path(name)
    if not path.is_file():
        return f"Jobs use it with `environment: {name}`, or `muster run SCRIPT --environment {name}`."
    key = "conda_file" if path.suffix in (".yml", ".yaml") else "pip_requirements_file"
    return (
        f"Jobs use it with `environment: {{{key}: {name}}}`, or `muster run SCRIPT --environment {name}`; "
        f"`muster env register NAME {name}` gives it a name."
    )


def register(
    name: Annotated[str, argument("NAME", "The name for jobs to use; without it, the one that the file says.")],
    file: Annotated[
        str | None,
        argument(
            "FILE",
            "A conda file (.yml), requirements (.txt), a Dockerfile, an environment of Azure ML, or a job file "
            "with an environment.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Register an environment in the workspace; jobs name it as `environment: azureml:NAME`.

    Its files are kept as they are now, with a Dockerfile its whole folder. Other content under the same name is its
    next version; a job gets the newest unless it names one (`azureml:NAME:1`).

    \b
    Examples:
      muster env register sums environment.yml
      muster env register environment.yml
    """
    named, file = (name, file) if file is not None else (None, name)
    job = _described(Path(file))
    if job is None:
        hint = "Give a conda file, a requirements file, a Dockerfile or a job file."
        raise NotFound(f"there is no file {file}.", hint)
    spec, base_dir = job
    if spec.environment is None or isinstance(spec.environment, str) or spec.environment.is_a_name:
        hint = "Write packages, an image or a Dockerfile into its `environment`."
        raise UserError(f"{file} does not describe an environment.", hint)
    kept = register_environment(connect(), named or spec.environment.name or Path(file).stem, spec, base_dir)
    line = f"{kept.name}  version {kept.version}  for jobs: `environment: azureml:{kept.name}`"
    print_result(kept, [line], as_json)


def rm(
    names: Annotated[
        list[str] | None, argument("KEY", "Keys of built environments and images, or their beginnings.")
    ] = None,
    all_: Annotated[bool, switch("Everything that no job uses.", "--all")] = False,
    as_json: Json = False,
) -> None:
    """Remove environments and images that were built on this machine. One that a job uses is kept.

    \b
    Examples:
      muster env rm --all
    """
    cache = _cache()
    if not names and not all_:
        raise UserError("no environment is named.", "Give keys as `muster env list` shows them, or --all.")
    swept = cache.sweep()
    chosen: list[Built | Image] = (
        [*cache.entries(), *images_here()] if all_ else [_one(name, cache) for name in names or []]
    )
    removed: list[str] = []
    for item in chosen:
        name = item.kept.name if isinstance(item, Image) else item.key
        if item.remove() if isinstance(item, Image) else cache.remove(item.key):
            removed.append(name)
        elif all_:
            say(f"{name} is in use and stays")
        else:
            raise Conflict(f"{name} is in use.", "Wait for the jobs that use it, or cancel them.")
    for key in swept:
        say(f"{key} was not complete")
        removed.append(key)
    if removed or as_json:
        print_result({"removed": removed}, [f"removed {name}" for name in removed], as_json)
    if all_ and not chosen and not swept:
        say("nothing is built here")


def export(name: Annotated[str, argument("RUN|NAME", "A run, or an environment that is built here.")]) -> None:
    """Print the exact versions of a run's or a built environment, as a conda file.

    `environment: {conda_file: FILE}` builds exactly these again. A run may be given by its id, its name or @latest.

    \b
    Examples:
      muster env export environment.yml > environment.lock.yml
    """
    built = _built(name, _cache()) or _built_by_name(name, _cache())
    if built is not None:
        made = built.record
        print(conda_text(made.label, made.recipe, made.python, made.lock, made.indexes), end="")
        return
    record = connect_to_read().environment_of_run(name)
    recipe = record.container.packages if record.container else record.recipe
    if recipe is None:
        hint = "An image is asked for again by its name; by its digest, where it must be the very same."
        raise NotFound(f"{name} ran in a container ({record.name}), which has no list of packages.", hint)
    if record.lock is None:
        raise NotFound(f"the environment of {name} has not been built yet.", "Wait until the run has started.")
    if record.container:
        print(f"# on top of the image {record.image}")
    print(conda_text(record.name, recipe, record.python or "", record.lock, record.indexes or ()), end="")


COMMANDS = (list_, show, build, register, export, rm)


def _cache() -> Cache:
    return Cache(environments_dir(), limit_bytes())


def _built_view(built: Built, cache: Cache) -> BuiltView:
    record = built.record
    return BuiltView(
        key=built.key,
        label=record.label,
        python=record.python,
        packages=len(record.lock),
        size=built.size,
        built_at=record.built_at,
        used_at=built.used_at,
        in_use=cache.is_used(built.key),
        folder=str(built.folder),
    )


def _image_view(image: Image) -> ImageView:
    kept = image.kept
    return ImageView(kept.key, kept.name, image.engine.kind, kept.size, kept.used_at or None, kept.in_use)


def _registered() -> list[EnvironmentView]:
    """Registered environments of a running server; does not start one."""
    try:
        return connect(start=False).environments()
    except ServerUnavailable:
        return []


def _built(name: str, cache: Cache) -> Built | None:
    """A built environment by its key or a prefix of it; None where it does not look like a key."""
    found = [item for item in cache.entries() if item.key.startswith(name)]
    return found[0] if len(found) == 1 and _KEY.fullmatch(name) else None


def _built_by_name(name: str, cache: Cache) -> Built | None:
    """The local build of a curated or registered environment, or of a file; None where there is no such name."""
    try:
        recipe, _ = _recipe_of(name, _resolved(name))
    except UserError:
        return None
    return cache.find(_key(recipe)[0])


def _one(name: str, cache: Cache) -> Built | Image:
    found: list[Built | Image] = [item for item in cache.entries() if item.key.startswith(name)]
    found = found or [image for image in images_here() if image.is_meant_by(name)]
    if len(found) == 1:
        return found[0]
    if found:
        keys = ", ".join(item.kept.key if isinstance(item, Image) else item.key for item in found)
        raise Conflict(f"{name!r} begins several keys: {keys}.", "Give more of it.")
    raise NotFound(f"no environment {name!r} is built here.", "`muster env list` shows what is.")


def _recipe_of(name: str, resolved: Resolved) -> tuple[Recipe, tuple[str, ...]]:
    """The recipe of a name or file on the command line; refuses what needs no build."""
    if resolved.recipe is None:
        reason = resolved.notices[0] if resolved.notices else f"{name} is an interpreter or image"
        raise UserError(f"{reason}: there is nothing to build.", "Name an environment that has packages.")
    return resolved.recipe, resolved.notices


def _resolved(name: str) -> Resolved:
    path = Path(name)
    job = _described(path)
    if job is None:
        if path.suffix in (".yml", ".yaml", ".txt"):
            raise NotFound(f"there is no file {name}.")
        return resolve(name, Site(has_gpus=has_gpus(), registered=_find_registered))
    spec = with_contents(*job)
    site = Site(isinstance(spec.distribution, Mpi), has_gpus=has_gpus(), registered=_find_registered)
    return resolve(spec.environment, site)


def _described(path: Path) -> tuple[JobSpec, Path] | None:
    """A job in the environment that a file describes, and the file's folder; None without the file."""
    if not path.is_file():
        return None
    if re.search(r"^command:", path.read_text(errors="replace"), re.MULTILINE):
        job = load_job_file(path)
        return job.spec, job.base_dir
    data = settle({"command": "true", "environment": environment_of(path)}).data
    return make_spec(data), path.absolute().parent


def _find_registered(name: str, version: str | None) -> Mapping[str, Value] | None:
    wanted = next((item for item in _registered() if item.name == name), None)
    if wanted is None or version is None:
        return wanted.spec if wanted else None
    return connect(start=False).environment(name, version).spec


def _key(recipe: Recipe) -> tuple[str, Interpreter]:
    try:
        base = find(recipe.python, sys.executable)
    except NoInterpreter as error:
        raise UserError(f"{error}.", "Choose one that is here with --python.") from error
    return key_of(recipe, base.minor, host_platform()), base
