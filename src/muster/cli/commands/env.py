"""Environments: `muster env …`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.cli.console import Paint, say
from muster.cli.images import Image, images_here
from muster.cli.options import Json, print_json
from muster.cli.text import ago, duration, size, table
from muster.errors import Conflict, MusterError, NotFound, UserError
from muster.wire.codec import from_json, to_json
from muster.wire.environments import RunEnvironment

if TYPE_CHECKING:
    from muster.environments.resolve import Resolved
    from muster.environments.venvs.cache import Built, Cache
    from muster.job.spec import JobSpec
    from muster.wire.node.recipes import Recipe

HELP = """Look at, build, register and remove environments: what the ranks of a job run in.

\b
Examples:
  muster env list
"""

NAME_HELP = "A curated or registered name, a conda file (.yml), a requirements file (.txt), or a job file."

_KEY = re.compile(r"py\d+\.\d+-[0-9a-f]{3,}")

Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help=NAME_HELP, show_default=False)]


def list_(as_json: Json = False) -> None:
    """List curated environments, those that are registered here, and what is built on this machine, images too.

    \b
    Examples:
      muster env list
      muster env list --json
    """
    from muster.environments.catalogue import load_all

    cache = _cache()
    curated = [{"name": entry.name, "description": entry.description} for entry in load_all()]
    built = [_facts(item, cache) for item in cache.all()]
    images = [image.to_json() for image in images_here()]
    found = {"curated": curated, "registered": _registered(), "built": built, "folder": str(cache.root)}
    found["images"] = images
    if as_json:
        print_json(found)
    else:
        print("\n".join(listing(found, Paint.of(sys.stdout), time.time())))


def show(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A name, a file, or the key of a built one.", show_default=False),
    ],
    as_json: Json = False,
) -> None:
    """Tell what an environment is made of, and which versions it came to where it is built here.

    \b
    Examples:
      muster env show pytorch
      muster env show pytorch-gpu --json
    """
    from muster.environments.venvs.recipe import without_secrets

    cache = _cache()
    built = _built(name, cache)
    resolved = _resolved(name) if built is None else None
    if resolved is not None and resolved.container is not None:
        _show_image(name, resolved, as_json)
        return
    if built is None:
        recipe, notices = _recipe_of(name)
        built = cache.find(_key(recipe)[0])
        options = [without_secrets(text) for text in recipe.options]
        found: dict[str, Any] = {"name": recipe.label, "notices": list(notices)}
        found["recipe"] = {**to_json(recipe), **({"options": options} if options else {})}
    else:
        found = {"name": built.record.label, "notices": [], "recipe": to_json(built.record.recipe)}
    found["built"] = _facts(built, cache) | {"lock": list(built.record.lock)} if built else None
    if as_json:
        print_json(found)
    else:
        print("\n".join(description(found, Paint.of(sys.stdout), time.time())))


def _show_image(name: str, resolved: Resolved, as_json: bool) -> None:
    from muster.environments.venvs.recipe import without_secrets

    container = to_json(resolved.container)
    if "packages" in container:
        options = [without_secrets(text) for text in container["packages"].get("options", ())]
        container["packages"] = {**container["packages"], "options": options}
    if as_json:
        print_json({"name": resolved.name, "notices": list(resolved.notices), "container": container})
        return
    build, packages = container.get("build"), container.get("packages", {})
    lines = [Paint.of(sys.stdout)(resolved.name or name, "bold"), *(f"  notice: {text}" for text in resolved.notices)]
    lines.append(f"  image built from {build['dockerfile']}" if build else f"  image {container['image']}")
    on_top = [*packages.get("conda", ()), *packages.get("requirements", ()), *packages.get("options", ())]
    print("\n".join([*lines, *(f"  + {text}" for text in on_top)]))


def build(
    name: Name,
    python: Annotated[
        str | None, typer.Option(metavar="VERSION|PATH", help="The Python to build on; this one else.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Build an environment on this machine, so that the first job that uses it need not wait.

    \b
    Examples:
      muster env build environment.yml
      muster env build requirements.txt
    """
    from dataclasses import replace

    from muster.environments.failures import Failure
    from muster.environments.venvs.builder import Progress, ensure

    recipe, notices = _recipe_of(name)
    for text in notices:
        say(f"notice: {text}")
    recipe = replace(recipe, python=python) if python else recipe
    cache = _cache()
    key, base = _key(recipe)
    began = time.monotonic()
    there = cache.find(key) is not None
    try:
        built = ensure(recipe, key, base, cache, Progress(write=say))
    except Failure as failure:
        raise MusterError(f"{recipe.label} could not be built: {failure.message}", failure.next, failure.code) from None
    if as_json:
        print_json(_facts(built, cache))
        return
    took = "was there already" if there else f"built in {duration(time.monotonic() - began)}"
    print(f"{built.key}  {took}  {len(built.record.lock)} packages  {size(built.size)}")


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What jobs will call it.", show_default=False)],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A conda file (.yml), a requirements file (.txt), a Dockerfile, or a job file with an environment.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Keep an environment in the workspace; jobs name it as `environment: azureml:NAME`.

    Its files are kept as they are now, of a Dockerfile the whole folder. Other content under the same name is its next
    version; a job gets the newest unless it names one (`azureml:NAME:1`).

    \b
    Examples:
      muster env register sums environment.yml
    """
    from muster.client.connect import connect
    from muster.client.submit import register_environment

    job = _described(Path(file))
    if job is None:
        hint = "Give a conda file, a requirements file, a Dockerfile or a job file."
        raise NotFound(f"there is no file {file}.", hint)
    spec, base_dir = job
    if spec.environment is None or isinstance(spec.environment, str) or spec.environment.is_a_name:
        hint = "Write packages, an image or a Dockerfile into its `environment`."
        raise UserError(f"{file} describes no environment of its own.", hint)
    kept = register_environment(connect(), name, spec, base_dir)
    if as_json:
        print_json(kept)
        return
    print(f"{kept['name']}  version {kept['version']}  for jobs: `environment: azureml:{kept['name']}`")


def rm(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY", help="Keys of built environments and images, or their beginnings.", show_default=False
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Everything that no job uses.", show_default=False)] = False,
) -> None:
    """Remove environments and images that were built on this machine. One that a job uses is kept.

    \b
    Examples:
      muster env rm --all
    """
    cache = _cache()
    if not names and not all_:
        raise UserError("nothing is named.", "Give keys as `muster env list` shows them, or --all.")
    swept = cache.sweep()
    chosen: list[Built | Image] = (
        [*cache.all(), *images_here()] if all_ else [_one(name, cache) for name in names or []]
    )
    for item in chosen:
        name = item.name if isinstance(item, Image) else item.key
        if item.remove() if isinstance(item, Image) else cache.remove(item.key):
            print(f"removed {name}")
        elif all_:
            say(f"{name} is in use and stays")
        else:
            raise Conflict(f"{name} is in use.", "Wait for the jobs that use it, or cancel them.")
    for key in swept:
        print(f"removed {key}, which was not complete")
    if all_ and not chosen and not swept:
        say("nothing is built here")


def export(
    name: Annotated[
        str,
        typer.Argument(metavar="RUN|NAME", help="A run, or an environment that is built here.", show_default=False),
    ],
) -> None:
    """Print the exact versions of a run's environment, or of a built one, as a conda file.

    `environment: {conda_file: FILE}` builds just these again. A run may be given by its id, its name or @latest.

    \b
    Examples:
      muster env export environment.yml > environment.lock.yml
    """
    from muster.environments.export import conda_text

    built = _built(name, _cache()) or _built_by_name(name, _cache())
    if built is not None:
        made = built.record
        print(conda_text(made.label, made.recipe, made.python, made.lock, made.indexes), end="")
        return
    from muster.client.connect import connect

    record = from_json(RunEnvironment, connect().environment_of_run(name))
    recipe = record.container.packages if record.container else record.recipe
    if recipe is None:
        hint = "An image is asked for again by its name; by its digest, where it must be the very same."
        raise NotFound(f"{name} ran in a container ({record.name}), which has no list of packages.", hint)
    if record.lock is None:
        raise NotFound(f"the environment of {name} has not been built yet.", "Wait until the run has started.")
    if record.container:
        print(f"# on top of the image {record.image}")
    print(conda_text(record.name, recipe, record.python or "", record.lock, record.indexes or ()), end="")


COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_,
    "show": show,
    "build": build,
    "register": register,
    "export": export,
    "rm": rm,
}


def listing(found: dict[str, Any], paint: Paint, now: float) -> list[str]:
    """The table of `muster env list`."""
    lines = [paint("curated", "bold")]
    lines += [f"  {line}" for line in table(("", ""), [(e["name"], e["description"]) for e in found["curated"]])[1:]]
    if found["registered"]:
        lines += ["", paint("registered", "bold")]
        rows = [(row["name"], f"version {row['version']}") for row in found["registered"]]
        lines += [f"  {line}" for line in table(("", ""), rows)[1:]]
    lines += ["", paint(f"built in {found['folder']}", "bold")]
    built = [
        (
            item["key"],
            item["label"],
            item["python"],
            str(item["packages"]),
            size(item["size"]),
            _last_used(item, now),
        )
        for item in found["built"]
    ]
    header = [paint(title, "dim") for title in ("KEY", "NAME", "PYTHON", "PACKAGES", "SIZE", "USED")]
    lines += [f"  {line}" for line in (table(header, built) if built else ["nothing yet"])]
    if not found["images"]:
        return lines
    header = [paint(title, "dim") for title in ("KEY", "NAME", "ENGINE", "SIZE", "USED")]
    images = [
        (item["key"], item["name"], item["engine"], size(item["size"]), _last_used(item, now))
        for item in found["images"]
    ]
    return [*lines, "", paint("images that were made here", "bold"), *(f"  {line}" for line in table(header, images))]


def _last_used(item: dict[str, Any], now: float) -> str:
    if item["in_use"]:
        return "now"
    return ago(item["used_at"], now) if item["used_at"] else "never"


def description(found: dict[str, Any], paint: Paint, now: float) -> list[str]:
    """What `muster env show` prints."""
    recipe, built = found["recipe"], found["built"]
    lines = [
        paint(str(found["name"]), "bold"),
        *(f"  {paint('notice:', 'yellow')} {text}" for text in found["notices"]),
    ]
    if recipe.get("python"):
        lines.append(f"  python {recipe['python']}")
    lines += [f"  {text}" for text in (*recipe.get("conda", ()), *recipe.get("requirements", ()))]
    lines += [f"  {text}" for text in recipe.get("options", ())]
    lines += [f"  {name}={value}" for name, value in recipe.get("variables", {}).items()]
    if built is None:
        return [*lines, "", "not built here: the first job that uses it builds it, or `muster env build`"]
    used = _last_used(built, now)
    lines += ["", f"{built['key']}  Python {built['python']}  {size(built['size'])}  used {used}"]
    return [*lines, *(f"  {text.partition(' --hash=')[0]}" for text in built["lock"])]


def _cache() -> Cache:
    from muster.environments.limits import limit_bytes
    from muster.environments.venvs.cache import Cache
    from muster.paths import environments_dir

    return Cache(environments_dir(), limit_bytes())


def _facts(built: Built, cache: Cache) -> dict[str, Any]:
    return {
        "key": built.key,
        "label": built.record.label,
        "python": built.record.python,
        "packages": len(built.record.lock),
        "size": built.size,
        "built_at": built.record.built_at,
        "used_at": built.used_at,
        "in_use": cache.is_used(built.key),
        "folder": str(built.folder),
    }


def _registered() -> list[dict[str, Any]]:
    """What a running server knows; looking starts none."""
    from muster.client.connect import connect
    from muster.errors import ServerUnavailable

    try:
        return connect(start=False).environments()
    except ServerUnavailable:
        return []


def _built(name: str, cache: Cache) -> Built | None:
    """A built environment by its key or the beginning of it; None where none is meant."""
    found = [item for item in cache.all() if item.key.startswith(name)]
    return found[0] if len(found) == 1 and _KEY.fullmatch(name) else None


def _built_by_name(name: str, cache: Cache) -> Built | None:
    """What is built here of a curated or registered environment, or of a file; None where the name is no such."""
    try:
        recipe, _ = _recipe_of(name)
    except UserError:
        return None
    return cache.find(_key(recipe)[0])


def _one(name: str, cache: Cache) -> Built | Image:
    found: list[Built | Image] = [item for item in cache.all() if item.key.startswith(name)]
    found = found or [image for image in images_here() if image.is_meant_by(name)]
    if len(found) == 1:
        return found[0]
    if found:
        keys = ", ".join(item.kept.key if isinstance(item, Image) else item.key for item in found)
        raise Conflict(f"{name!r} begins several keys: {keys}.", "Give more of it.")
    raise NotFound(f"no environment {name!r} is built here.", "`muster env list` shows what is.")


def _recipe_of(name: str) -> tuple[Recipe, tuple[str, ...]]:
    """What a name or file on the command line describes; refuses what needs no build."""
    resolved = _resolved(name)
    if resolved.recipe is None:
        said = resolved.notices[0] if resolved.notices else f"{name} is an interpreter or image"
        raise UserError(f"{said}: there is nothing to build.", "Name an environment that has packages.")
    return resolved.recipe, resolved.notices


def _resolved(name: str) -> Resolved:
    from muster.environments.files import with_contents
    from muster.environments.resolve import Site, resolve
    from muster.environments.venvs.builder import has_gpus
    from muster.job.parts import Mpi

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
    """A job in the environment that a file describes, and the folder that it is relative to; None without the file."""
    from muster.job.explain import make_spec
    from muster.job.jobfile import load_job_file

    if not path.is_file():
        return None
    path = path.absolute()
    if path.suffix == ".txt":
        environment: dict[str, Any] = {"pip": [f"-r {path}"]}
    elif "dockerfile" in path.name.lower():
        environment = {"build": {"path": str(path.parent), "dockerfile_path": path.name}}
    elif _is_job_file(path):
        job = load_job_file(path)
        return job.spec, job.base_dir
    else:
        environment = {"conda_file": str(path)}
    return make_spec({"command": "true", "environment": {"name": path.stem, **environment}}), path.parent


def _is_job_file(path: Path) -> bool:
    return any(line.startswith("command:") for line in path.read_text(errors="replace").splitlines())


def _find_registered(name: str, version: str | None) -> dict[str, Any] | None:
    wanted = [row for row in _registered() if row["name"] == name]
    if not wanted or version is None:
        return wanted[0]["spec"] if wanted else None
    from muster.client.connect import connect

    spec: dict[str, Any] = connect(start=False).environment(name, version)["spec"]
    return spec


def _key(recipe: Recipe) -> tuple[str, Any]:
    from muster.environments.venvs.interpreters import NoInterpreter, find, host_platform
    from muster.environments.venvs.recipe import key_of

    try:
        base = find(recipe.python, sys.executable)
    except NoInterpreter as error:
        raise UserError(f"{error}.", "Choose one that is here with --python.") from error
    return key_of(recipe, base.minor, host_platform()), base
