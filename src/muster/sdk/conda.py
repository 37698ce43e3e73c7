"""Packages of conda and pip, under v1's names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from muster.environments.files import conda_content
from muster.wire.codec import Json


class CondaDependencies:
    """Packages of conda and pip."""

    def __init__(self, conda_dependencies_file_path: str | None = None) -> None:
        self.python_version: str | None = None
        self._channels: list[str] = []
        self._conda: list[str] = []
        self._pip: list[str] = []
        if conda_dependencies_file_path is not None:
            self._read(conda_content(Path(conda_dependencies_file_path).absolute()))

    @staticmethod
    def create(
        pip_indexurl: str | None = None,
        pip_packages: Iterable[str] | None = None,
        conda_packages: Iterable[str] | None = None,
        python_version: str | None = None,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        """Packages of pip and conda, and a Python version.

        >>> CondaDependencies.create(pip_packages=["tqdm==4.66.5"]).pip_packages
        ['tqdm==4.66.5']
        """
        made = CondaDependencies()
        made.python_version = python_version
        made._conda = list(conda_packages or [])
        made._pip = list(pip_packages or [])
        if pip_indexurl:
            made._pip.insert(0, f"--index-url {pip_indexurl}")
        return made

    @staticmethod
    def of(content: Mapping[str, Json]) -> CondaDependencies:
        """From the content of a conda file."""
        made = CondaDependencies()
        made._read(content)
        return made

    @property
    def conda_packages(self) -> list[str]:
        """The packages that conda installs."""
        return list(self._conda)

    @property
    def pip_packages(self) -> list[str]:
        """The packages that pip installs."""
        return list(self._pip)

    def add_pip_package(self, pip_package: str) -> None:
        """Add a package of pip."""
        self._pip.append(pip_package)

    def add_conda_package(self, conda_package: str) -> None:
        """Add a package of conda."""
        self._conda.append(conda_package)

    def add_channel(self, channel: str) -> None:
        """Add a channel of conda."""
        self._channels.append(channel)

    def set_python_version(self, version: str) -> None:
        """Choose the Python version."""
        self.python_version = version

    def remove_pip_packages(self, names: Iterable[str]) -> None:
        """Remove packages of pip by their names."""
        gone = {_package_name(name) for name in names}
        self._pip = [package for package in self._pip if _package_name(package) not in gone]

    def remove_pip_package(self, pip_package: str) -> None:
        """Remove a package of pip."""
        self.remove_pip_packages([pip_package])

    def remove_conda_package(self, conda_package: str) -> None:
        """Remove a package of conda."""
        gone = _package_name(conda_package)
        self._conda = [package for package in self._conda if _package_name(package) != gone]

    def remove_channel(self, channel: str) -> None:
        """Remove a channel of conda."""
        self._channels = [known for known in self._channels if known != channel]

    def set_pip_requirements(self, pip_requirements: Iterable[str]) -> None:
        """Replace the packages of pip by these."""
        self._pip = list(pip_requirements)

    def set_pip_option(self, pip_option: str) -> None:
        """Give pip an option, such as `--extra-index-url ADDRESS`."""
        self._pip.insert(0, pip_option)

    def set_pip_index_url(self, index_url: str) -> None:
        """Have pip use another index."""
        self.set_pip_option(index_url if index_url.startswith("-") else f"--index-url {index_url}")

    def add_tensorflow_pip_package(self, core_type: str = "cpu", version: str | None = None) -> None:
        """Add TensorFlow as a package of pip."""
        self.add_pip_package(f"tensorflow=={version}" if version else "tensorflow")

    def add_tensorflow_conda_package(self, core_type: str = "cpu", version: str | None = None) -> None:
        """Add TensorFlow as a package of conda."""
        self.add_conda_package(f"tensorflow={version}" if version else "tensorflow")

    @property
    def conda_channels(self) -> list[str]:
        """The channels that conda uses."""
        return list(self._channels)

    def get_python_version(self) -> str | None:
        """The chosen Python version."""
        return self.python_version

    def serialize_to_string(self) -> str:
        """The text of a conda file."""
        text: str = yaml.safe_dump(self.as_dict(), sort_keys=False)
        return text

    def save(self, path: str | None = None) -> str:
        """Write a conda file; returns its path."""
        file = Path(path or "conda_dependencies.yml")
        file.write_text(self.serialize_to_string(), encoding="utf-8")
        return str(file)

    def save_to_file(self, base_directory: str, conda_file_path: str | None = None) -> str:
        """Write a conda file below a folder; returns its path in it."""
        name = conda_file_path or "conda_dependencies.yml"
        self.save(str(Path(base_directory) / name))
        return name

    def as_dict(self) -> dict[str, Json]:
        """The content of a conda file."""
        packages: list[Json] = [f"python={self.python_version}"] if self.python_version else []
        packages += self._conda
        if self._pip:
            packages += [*([] if "pip" in self._conda else ["pip"]), {"pip": list(self._pip)}]
        return {"name": "muster", "channels": self._channels or ["conda-forge"], "dependencies": packages}

    def _read(self, data: Mapping[str, Json]) -> None:
        self._channels = [str(channel) for channel in _items(data.get("channels"))]
        for item in _items(data.get("dependencies")):
            if isinstance(item, Mapping):
                self._pip += [str(package) for package in _items(item.get("pip"))]
            elif match := re.fullmatch(r"python\s*={1,2}\s*([\d.*]+)", str(item)):
                self.python_version = match[1]
            else:
                self._conda.append(str(item))


def _package_name(requirement: str) -> str:
    """`Scikit_Learn >= 1.0` is `scikit-learn`."""
    return re.split(r"[\s=<>!~\[;]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")


def _items(value: Json) -> Sequence[Json]:
    """The items of a list in a document; none for anything else."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
