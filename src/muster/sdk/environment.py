"""The environment of a script, under v1's names."""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.client.submit import register_environment
from muster.environments import catalogue, names
from muster.environments.files import requirement_file
from muster.environments.images.registries import registry_of, secret_name
from muster.environments.venvs.builder import has_gpus
from muster.errors import JobError, NotFound
from muster.job.explain import make_spec
from muster.job.parts import EnvironmentSpec
from muster.job.rules import is_snapshot
from muster.paths import environments_dir
from muster.sdk.conda import CondaDependencies
from muster.sdk.connected import Connected
from muster.sdk.notices import tell
from muster.wire.codec import Json


@dataclass
class PythonSection:
    """The Python of an environment."""

    user_managed_dependencies: bool = False
    interpreter_path: str = "python"
    conda_dependencies: CondaDependencies = field(default_factory=CondaDependencies)
    conda_dependencies_file: str | None = None
    base_conda_environment: str | None = None

    def packages(self) -> CondaDependencies:
        """The packages; those of the conda file if one is given."""
        file = self.conda_dependencies_file
        return CondaDependencies(file) if file is not None else self.conda_dependencies


@dataclass
class DockerBuildContext:
    """A folder with a Dockerfile."""

    location: str
    dockerfile_path: str = "Dockerfile"

    @staticmethod
    def from_local_directory(
        workspace: Any = None, path: str | Path = ".", dockerfile_path: str = "Dockerfile"
    ) -> DockerBuildContext:
        """A folder of this machine."""
        return DockerBuildContext(os.fspath(path), dockerfile_path)

    @staticmethod
    def from_git(*args: Any, **kwargs: Any) -> DockerBuildContext:
        """Refused: the folder is sent with the job."""
        raise JobError("a build context cannot come from a repository's address", "Clone it, and give its folder.")


@dataclass
class Registry:
    """The registry of an image; its password is set with `muster secret set`."""

    address: str | None = None
    username: str | None = None
    password: str | None = None


@dataclass
class DockerSection:
    """The container of an environment."""

    enabled: bool = False
    base_image: str | None = None
    base_dockerfile: str | None = None
    sent_build: Mapping[str, Json] | None = None
    """The build context of a registered environment's image, which was sent when it was registered."""
    shm_size: str | None = None
    arguments: list[str] = field(default_factory=list)
    shared_volumes: bool = True
    gpu_support: bool | None = None
    base_image_registry: Registry = field(default_factory=Registry)


class Environment:
    """The environment of a script: the current Python, packages, or a container image."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version: str | None = None
        self.python = PythonSection()
        self.docker = DockerSection()
        self.environment_variables: dict[str, str] = {}
        self.is_curated = False

    @staticmethod
    def get(workspace: Connected | None = None, name: str = "", version: str | None = None) -> Environment:
        """A registered environment, or a curated one; an old name of Azure ML's is resolved, with a notice."""
        short = names.bare(name)
        if workspace is not None and names.meaning(name, is_mpi=False) is None:
            stored = workspace.client.environment(short, version or names.version_of(name))
            return from_spec(short, stored.spec, str(stored.version))
        environment = curated(name)
        if notice := azure_name_notice(name):
            tell(notice)
        environment.version = version
        return environment

    @staticmethod
    def list(workspace: Connected) -> dict[str, Environment]:
        """The newest version of every registered environment, by name."""
        found = workspace.client.environments()
        return {view.name: from_spec(view.name, view.spec, str(view.version)) for view in found}

    @staticmethod
    def from_pip_requirements(name: str, file_path: str, pip_version: str | None = None) -> Environment:
        """An environment with the packages of a requirements file."""
        lines = requirement_file(Path(file_path).absolute())
        made = Environment(name)
        wanted = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
        made.python.conda_dependencies = CondaDependencies.create(pip_packages=[line for line in wanted if line])
        return made

    @staticmethod
    def from_conda_specification(name: str, file_path: str) -> Environment:
        """An environment with the packages of a conda file."""
        made = Environment(name)
        made.python.conda_dependencies = CondaDependencies(file_path)
        return made

    @staticmethod
    def from_docker_image(
        name: str,
        image: str,
        container_registry: Any = None,
        conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:
        """An environment with a container image, and packages on top of it if given."""
        made = _on_image(name, conda_specification, pip_requirements)
        address = getattr(container_registry, "address", None) or ""
        made.docker.base_image = f"{address}/{image}" if address and not image.startswith(f"{address}/") else image
        if getattr(container_registry, "password", None):
            # A password in a script would be sent along with its code.
            secret = secret_name(registry_of(made.docker.base_image))
            tell(f"the password of container_registry is not taken over; keep it with `muster secret set {secret}`")
        return made

    @staticmethod
    def from_dockerfile(
        name: str, dockerfile: str | Path, conda_specification: str | None = None, pip_requirements: str | None = None
    ) -> Environment:
        """An environment whose image is built from a Dockerfile, given by its path or text."""
        made = _on_image(name, conda_specification, pip_requirements)
        made.docker.base_dockerfile = os.fspath(dockerfile)
        return made

    @staticmethod
    def from_docker_build_context(
        name: str,
        docker_build_context: DockerBuildContext,
        conda_specification: str | None = None,
        pip_requirements: str | None = None,
    ) -> Environment:
        """An environment whose image is built from a folder with a Dockerfile."""
        made = _on_image(name, conda_specification, pip_requirements)
        given = docker_build_context
        made.docker.base_dockerfile = str(Path(given.location) / given.dockerfile_path)
        return made

    @staticmethod
    def from_existing_conda_environment(name: str, conda_environment_name: str) -> Environment:
        """Refused: packages installed on one machine need not be on another."""
        raise JobError(
            f"the conda environment {conda_environment_name!r} cannot be taken over",
            "Write it to a file with `conda env export --from-history`, and use Environment.from_conda_specification.",
        )

    def register(self, workspace: Connected) -> Environment:
        """Register this environment in the workspace, where jobs find it by its name."""
        described, notices = to_spec(self)
        if not isinstance(described, dict):
            raise JobError(f"environment {self.name!r} describes nothing that could be kept", "Add packages to it.")
        job = make_spec({"command": "true", "environment": described})
        tell(*notices)
        self.version = str(register_environment(workspace.client, self.name, job, Path.cwd()).version)
        return self

    def build(self, workspace: Connected, **kwargs: Any) -> EnvironmentBuild:
        """Register it; it is built when a job first needs it, once on each host."""
        return EnvironmentBuild(self.register(workspace))

    def build_local(self, workspace: Connected, *args: Any, **kwargs: Any) -> EnvironmentBuild:
        """The same as `build`: the host that runs the job builds it."""
        return self.build(workspace)

    def clone(self, new_name: str) -> Environment:
        """A copy under another name; a copy of a curated environment holds its packages, which can then be changed."""
        made = copy.deepcopy(self)
        meaning = names.meaning(self.name, is_mpi=False) if self.is_curated else None
        if meaning is not None and meaning.curated is not None:
            flavour = meaning.flavour or ("gpu" if has_gpus() else "cpu")
            recipe = catalogue.load(meaning.curated).recipes[flavour]
            made.is_curated = False
            made.python.conda_dependencies = CondaDependencies.create(pip_packages=recipe.requirements)
            made.environment_variables |= recipe.variables
        made.name, made.version = new_name, None
        return made

    def __repr__(self) -> str:
        return f"Environment(name={self.name!r})"


class EnvironmentBuild:
    """The result of `Environment.build`, which v1 scripts wait for."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.status = "Succeeded"

    def wait_for_completion(self, show_output: bool = True) -> None:
        """Returns at once: there is nothing to wait for."""
        if show_output:
            print(f"{self.environment.name}: registered; a job that needs it has it built", flush=True)


def _on_image(name: str, conda_specification: str | None, pip_requirements: str | None) -> Environment:
    if conda_specification:
        made = Environment.from_conda_specification(name, conda_specification)
    elif pip_requirements:
        made = Environment.from_pip_requirements(name, pip_requirements)
    else:
        made = Environment(name)
    made.docker.enabled = True
    return made


def curated(name: str) -> Environment:
    """The environment for a curated name; NotFound for a name that Azure never had."""
    if names.meaning(name, is_mpi=False) is None:
        raise NotFound(
            f"there is no environment {name!r}; curated are: {', '.join(names.CURATED)}",
            "For packages of your own use Environment.from_pip_requirements or from_conda_specification; leave it out "
            "for the current Python.",
        )
    made = Environment(name)
    made.is_curated = True
    return made


def azure_name_notice(name: str) -> str:
    """A notice that says what a name of Azure ML's stands for; empty for Muster's own names."""
    meaning = names.meaning(name, is_mpi=False)
    if meaning is None or not meaning.old:
        return ""
    return names.azure_notice(name, meaning.curated)


def from_spec(name: str, spec: Mapping[str, Json], version: str | None = None) -> Environment:
    """An environment from the value of `environment` in a job file."""
    stored = EnvironmentSpec.model_validate(spec, strict=False)
    made = Environment(name)
    made.version = version
    if isinstance(stored.conda_file, dict):
        made.python.conda_dependencies = CondaDependencies.of(stored.conda_file)
    elif stored.pip:
        made.python.conda_dependencies = CondaDependencies.create(pip_packages=stored.pip)
    if stored.python and "/" in stored.python:
        made.python.user_managed_dependencies = True
        made.python.interpreter_path = stored.python
    elif stored.python:
        made.python.conda_dependencies.set_python_version(stored.python)
    if stored.image:
        made.docker.enabled, made.docker.base_image = True, stored.image
    if build := stored.build:
        made.docker.enabled = True
        if is_snapshot(build.path):
            made.docker.sent_build = build.model_dump(mode="json", exclude_defaults=True)
        else:
            made.docker.base_dockerfile = str(Path(build.path) / (build.dockerfile_path or "Dockerfile"))
    return made


def to_spec(environment: Environment | str | None) -> tuple[dict[str, Json] | str | None, list[str]]:
    """The environment of a job file, and notices; None is the current Python."""
    if environment is None or isinstance(environment, str):
        return environment, []
    if environment.is_curated:
        return environment.name, []
    packages, notices = _without_azure(environment.python.packages())
    docker, python = environment.docker, environment.python
    if image := _image(docker):
        if not python.user_managed_dependencies and (packages.conda_packages or packages.pip_packages):
            image["conda_file"] = packages.as_dict()
        return {"name": environment.name, **image}, notices
    if python.user_managed_dependencies:
        if python.interpreter_path == "python":
            return None, notices
        return {"name": environment.name, "python": python.interpreter_path}, notices
    if packages.conda_packages:
        return {"name": environment.name, "conda_file": packages.as_dict()}, notices
    version = {"python": packages.python_version} if packages.python_version else {}
    if packages.pip_packages:
        return {"name": environment.name, "pip": packages.pip_packages, **version}, notices
    return {"name": environment.name, **version} if version else None, notices


def _image(docker: DockerSection) -> dict[str, Json]:
    """The base image for packages; empty if there is none."""
    if docker.base_dockerfile:
        return {"build": _build(docker.base_dockerfile)}
    if docker.sent_build:
        return {"build": dict(docker.sent_build)}
    if not docker.base_image:
        return {}
    address = docker.base_image_registry.address or ""
    is_named = not address or docker.base_image.startswith(f"{address}/")
    return {"image": docker.base_image if is_named else f"{address}/{docker.base_image}"}


def _build(dockerfile: str) -> dict[str, str]:
    """A Dockerfile by its path; one given as text is first written to a file."""
    path = Path(dockerfile)
    if "\n" not in dockerfile and path.is_file():
        return {"path": str(path.absolute().parent), "dockerfile_path": path.name}
    if "\n" not in dockerfile and not dockerfile.upper().startswith("FROM "):
        raise JobError(f"there is no Dockerfile {dockerfile}", "Give the path of a file, or the text of one.")
    folder = environments_dir().parent / "dockerfiles" / hashlib.sha256(dockerfile.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Dockerfile").write_text(dockerfile)
    return {"path": str(folder)}


def _without_azure(packages: CondaDependencies) -> tuple[CondaDependencies, list[str]]:
    """The packages without Azure's own SDK, which Muster's runtime replaces in every rank, and notices."""
    azure = [package for package in packages.pip_packages if re.match(r"azureml[-_]", package)]
    kept = copy.deepcopy(packages)
    kept.remove_pip_packages(azure)
    return kept, [f"the package {package} is left out: `muster` takes its place" for package in azure]
