"""What a script runs in, in v1's words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from muster.errors import JobError, NotFound
from muster.sdk.connected import Connected
from muster.sdk.notices import tell

_CURATED = re.compile(
    r"(azureml:|azureml-|acpt-|pytorch|tensorflow|tf\d|keras|chainer|sklearn|scikit|lightgbm|minimal|responsibleai|openmpi)",
    re.IGNORECASE,
)


class CondaDependencies:
    """Packages of conda and pip."""

    def __init__(self, conda_dependencies_file_path: str | None = None) -> None:
        self.python_version: str | None = None
        self._channels: list[str] = []
        self._conda: list[str] = []
        self._pip: list[str] = []
        if conda_dependencies_file_path is not None:
            self._read(_mapping(Path(conda_dependencies_file_path)))

    @staticmethod
    def create(
        pip_indexurl: str | None = None,
        pip_packages: Iterable[str] | None = None,
        conda_packages: Iterable[str] | None = None,
        python_version: str | None = None,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        made = CondaDependencies()
        made.python_version = python_version
        made._conda = list(conda_packages or [])
        made._pip = list(pip_packages or [])
        if pip_indexurl:
            made._pip.insert(0, f"--index-url {pip_indexurl}")
        return made

    @property
    def conda_packages(self) -> list[str]:
        return list(self._conda)

    @property
    def pip_packages(self) -> list[str]:
        return list(self._pip)

    def add_pip_package(self, pip_package: str) -> None:
        self._pip.append(pip_package)

    def add_conda_package(self, conda_package: str) -> None:
        self._conda.append(conda_package)

    def add_channel(self, channel: str) -> None:
        self._channels.append(channel)

    def set_python_version(self, version: str) -> None:
        self.python_version = version

    def remove_pip_packages(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._pip = [package for package in self._pip if package not in gone]

    def as_dict(self) -> dict[str, Any]:
        """The content of a conda file."""
        packages: list[Any] = [f"python={self.python_version}"] if self.python_version else []
        packages += self._conda
        if self._pip:
            packages += [*([] if "pip" in self._conda else ["pip"]), {"pip": list(self._pip)}]
        return {"name": "muster", "channels": self._channels or ["conda-forge"], "dependencies": packages}

    def _read(self, data: Mapping[str, Any]) -> None:
        self._channels = list(data.get("channels") or [])
        for item in data.get("dependencies") or []:
            if isinstance(item, Mapping):
                self._pip += [str(package) for package in item.get("pip") or []]
            elif match := re.fullmatch(r"python\s*={1,2}\s*([\d.*]+)", str(item)):
                self.python_version = match[1]
            else:
                self._conda.append(str(item))


class PythonSection:
    """The Python of an environment."""

    def __init__(self) -> None:
        self.user_managed_dependencies = False
        self.interpreter_path = "python"
        self.conda_dependencies = CondaDependencies()


class DockerSection:
    """The container of an environment."""

    def __init__(self) -> None:
        self.enabled = False
        self.base_image: str | None = None
        self.base_dockerfile: str | None = None
        self.shm_size: str | None = None


class Environment:
    """What a script runs in: the current Python, packages, or a container image."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version: str | None = None
        self.python = PythonSection()
        self.docker = DockerSection()
        self.environment_variables: dict[str, str] = {}
        self.is_curated = False

    @staticmethod
    def get(workspace: Connected | None = None, name: str = "", version: str | None = None) -> Environment:
        """An environment by name; a curated or old name stands for the current Python, with a notice."""
        environment = curated(name)
        tell(curated_notice(name))
        environment.version = version
        return environment

    @staticmethod
    def from_pip_requirements(name: str, file_path: str, pip_version: str | None = None) -> Environment:
        """The packages of a requirements file."""
        path = Path(file_path)
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise JobError(f"the requirements file {file_path} cannot be read: {error}") from error
        made = Environment(name)
        wanted = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
        made.python.conda_dependencies = CondaDependencies.create(pip_packages=[line for line in wanted if line])
        return made

    @staticmethod
    def from_conda_specification(name: str, file_path: str) -> Environment:
        """The packages of a conda file."""
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
        """A container image, with packages on top of it if given."""
        made = Environment(name)
        if conda_specification:
            made.python.conda_dependencies = CondaDependencies(conda_specification)
        elif pip_requirements:
            made = Environment.from_pip_requirements(name, pip_requirements)
        made.docker.enabled = True
        made.docker.base_image = image
        return made

    def register(self, workspace: Connected) -> Environment:
        """Kept for v1 scripts: the environment travels with each job that uses this object."""
        tell(f"environment {self.name!r} is not stored by register(); give this object to each ScriptRunConfig")
        return self

    def __repr__(self) -> str:
        return f"Environment(name={self.name!r})"


def curated(name: str) -> Environment:
    """The environment behind a curated name; NotFound for a name that Azure never curated."""
    if not _CURATED.match(name):
        raise NotFound(
            f"there is no environment {name!r}",
            "Curated names (AzureML-…) stand for the current Python. For packages of your own use "
            "Environment.from_pip_requirements or from_conda_specification; leave it out for the current Python.",
        )
    made = Environment(name)
    made.is_curated = True
    return made


def curated_notice(name: str) -> str:
    return f"environment {name!r} is a curated one of Azure ML; the job runs in the current Python instead"


def to_spec(environment: Environment | str | None) -> tuple[dict[str, Any] | None, list[str]]:
    """The environment of a job file, and notices; None is the current Python."""
    if environment is None:
        return None, []
    if isinstance(environment, str):
        environment = curated(environment)
    if environment.is_curated:
        return None, [curated_notice(environment.name)]
    packages, notices = _without_azure(environment.python.conda_dependencies)
    docker, python = environment.docker, environment.python
    if docker.base_dockerfile:
        raise JobError(
            f"environment {environment.name!r} has a base_dockerfile, which cannot be built",
            "Build the image yourself and use Environment.from_docker_image(name, image).",
        )
    if docker.base_image:
        image: dict[str, Any] = {"name": environment.name, "image": docker.base_image}
        if not python.user_managed_dependencies and (packages.conda_packages or packages.pip_packages):
            image["conda_file"] = packages.as_dict()
        return image, notices
    if python.user_managed_dependencies:
        own = None if python.interpreter_path == "python" else {"python": python.interpreter_path}
        return own and {"name": environment.name, **own}, notices
    if packages.conda_packages:
        return {"name": environment.name, "conda_file": packages.as_dict()}, notices
    if packages.pip_packages:
        version = {"python": packages.python_version} if packages.python_version else {}
        return {"name": environment.name, "pip": packages.pip_packages, **version}, notices
    return None, notices


def _without_azure(packages: CondaDependencies) -> tuple[CondaDependencies, list[str]]:
    """Azure's own SDK has nothing to talk to here; Muster's runtime takes its place in every rank."""
    azure = [package for package in packages.pip_packages if re.match(r"azureml[-_]", package)]
    kept = CondaDependencies.create(None, packages.pip_packages, packages.conda_packages, packages.python_version)
    kept.remove_pip_packages(azure)
    for channel in packages._channels:
        kept.add_channel(channel)
    return kept, [f"the package {package} is left out: `muster` takes its place" for package in azure]


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise JobError(f"the conda file {path} cannot be read: {error}") from error
    if not isinstance(data, Mapping):
        raise JobError(f"the conda file {path} is not a mapping with `dependencies`")
    return data
