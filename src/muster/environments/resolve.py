"""From what a job says about its environment to what has to be built for it: decided before anything starts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from muster.environments import catalogue, condafile, names, requirements
from muster.environments.names import Meaning
from muster.environments.venvs import interpreters
from muster.job.explain import job_error
from muster.job.parts import EnvironmentSpec
from muster.job.refusal import Path, Problem, show
from muster.job.rules import SNAPSHOT
from muster.wire.codec import Json
from muster.wire.node.containers import Build, ImageSource
from muster.wire.node.recipes import Recipe

# A path is an image file of apptainer's.
_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._:/@+-]*")
Registered = Callable[[str, str | None], Mapping[str, Json] | None]
"""An environment that somebody registered, by name and version; None where there is none."""


@dataclass(frozen=True)
class Site:
    """What the decision needs to know of where the job will run."""

    is_mpi: bool = False
    has_gpus: bool = False
    packages: Mapping[str, str] | None = None
    """What the Python that submitted has; None: that Python is not on the nodes."""
    registered: Registered = field(default=lambda name, version: None)


@dataclass(frozen=True)
class Resolved:
    """How the ranks' interpreter is reached."""

    name: str | None = None
    recipe: Recipe | None = None
    """Built on each node; None: nothing is built."""
    python: str | None = None
    """An interpreter to use as it is; None: the job's own."""
    notices: tuple[str, ...] = ()
    container: ImageSource | None = None
    """The image that the ranks run in."""


def resolve(environment: str | EnvironmentSpec | None, site: Site) -> Resolved:
    """What a job's environment means; raises JobError for one that cannot be."""
    if environment is None:
        return Resolved()
    if isinstance(environment, str):
        return _by_name(environment, site)
    if environment.image is not None or environment.build is not None:
        return _container(environment)
    if environment.conda_file is not None:
        return _conda(environment)
    if environment.python is not None or environment.pip:
        return _packages(environment)
    return _by_name(environment.name or "", site)


def _by_name(name: str, site: Site) -> Resolved:
    short, version = names.bare(name), names.version_of(name)
    stored = site.registered(short, version)
    if stored is not None:
        found = resolve(EnvironmentSpec.model_validate({"name": short, **stored}), site)
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
        return Resolved(short, notices=(f"environment {name} holds no framework: the job runs in the current Python",))
    return _curated(name, meaning, site)


def _curated(name: str, meaning: Meaning, site: Site) -> Resolved:
    assert meaning.curated is not None
    entry = catalogue.load(meaning.curated)
    notices = []
    if meaning.old:
        why = "" if meaning == names.meaning(name, is_mpi=False) else " for an MPI job"
        notices.append(f"environment {name} is an old name of Azure ML; it stands for {meaning.curated}{why}")
    if meaning.flavour is None and site.packages is not None and entry.is_met_by(site.packages):
        have = ", ".join(f"{package} {site.packages[package]}" for package in entry.needs if package in site.packages)
        notices.append(
            f"environment {meaning.curated}: the Python that submits has {have or 'what it needs'} and is used "
            f"as it is ({meaning.curated}-{_flavour(meaning, site)} is always built)"
        )
        return Resolved(meaning.curated, notices=tuple(notices))
    recipe = entry.recipes[_flavour(meaning, site)]
    return Resolved(recipe.label, recipe, notices=tuple(notices))


def _flavour(meaning: Meaning, site: Site) -> str:
    return meaning.flavour or ("gpu" if site.has_gpus else "cpu")


def _container(environment: EnvironmentSpec) -> Resolved:
    image = _image(environment)
    on_top = _conda(environment) if environment.conda_file is not None else _packages(environment)
    recipe = on_top.recipe
    if recipe is None or not (recipe.requirements or recipe.conda or recipe.python):
        return Resolved(environment.name, container=image, notices=on_top.notices)
    return Resolved(environment.name, container=replace(image, packages=recipe), notices=on_top.notices)


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


def _conda(environment: EnvironmentSpec) -> Resolved:
    if isinstance(environment.conda_file, str):
        hint = "Give the file's content, or submit with the client, which reads it."
        raise _refusal(("environment", "conda_file"), f"{environment.conda_file} was not read", hint)
    at: Path = ("environment", "conda_file")
    try:
        file = condafile.read(environment.conda_file)
    except condafile.BadCondaFile as wrong:
        raise _refusal((*at, *wrong.path), wrong.message, wrong.hint) from wrong
    recipe = _recipe(environment.name or "conda", file.pip, file.python, (*at, "pip"))
    whole = replace(recipe, channels=file.channels, conda=file.conda, variables=file.variables)
    return Resolved(environment.name, whole, notices=_azure_notices(file.pip))


def _packages(environment: EnvironmentSpec) -> Resolved:
    python = environment.python
    if python is not None and interpreters.is_path(python) and not environment.pip:
        return Resolved(environment.name, python=python)
    recipe = _recipe(environment.name or "packages", environment.pip, python, ("environment", "pip"))
    return Resolved(environment.name, recipe, notices=_azure_notices(environment.pip))


def _recipe(label: str, pip: tuple[str, ...], python: str | None, at: Path) -> Recipe:
    _check_python(python, ("environment", "python"))
    kept = tuple(line for line in pip if not _is_azures(line))
    wanted = requirements.read(kept)
    if wanted.problems:
        raise job_error([Problem((*at, index), message) for index, message in wanted.problems], lambda problem: "")
    return Recipe(label, wanted.requirements, python, wanted.options)


def _check_python(python: str | None, at: Path) -> None:
    if python is None or interpreters.is_path(python):
        return
    oldest = ".".join(map(str, interpreters.OLDEST))
    hint = f"Write a version from {oldest} on, such as 3.11, or the path of an interpreter."
    try:
        signs = interpreters.clauses(python)
    except ValueError as error:
        raise _refusal(at, str(error), hint) from error
    if any(sign in ("=", "~=", "<=") and version < interpreters.OLDEST[: len(version)] for sign, version in signs):
        raise _refusal(at, f"Python {python} is too old: ranks run in Python {oldest} or newer", hint)


def _azure_notices(pip: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"the package {line} is left out: `muster` takes its place" for line in pip if _is_azures(line))


def _is_azures(line: str) -> bool:
    """Azure's own SDK has nothing to talk to here; Muster's runtime takes its place in every rank."""
    return line.strip().lower().startswith(("azureml-", "azureml_"))


def _refusal(at: Path, message: str, hint: str) -> Exception:
    return job_error([Problem(at, message, hint)], lambda problem: "")
