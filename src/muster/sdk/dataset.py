"""Files as inputs of a job, in v1's words."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from muster.errors import JobError
from muster.sdk.datastore import DataPath, Datastore

_Location = str | os.PathLike[str] | DataPath | tuple[Datastore, str]


class FileDataset:
    """A local file or folder that jobs read."""

    def __init__(self, path: str) -> None:
        # v1 says "all files below" with a pattern; a folder means the same.
        self.path = str(Path(path.removesuffix("/**").removesuffix("/*") or "/").expanduser().absolute())
        if any(letter in self.path for letter in "*?["):
            raise JobError(f"the pattern {path!r} cannot be an input", "Give the folder or the one file.")

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(name, self)

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(None, self).as_mount(path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(None, self).as_download(path_on_compute)

    def to_path(self) -> list[str]:
        """The files' paths below the dataset, as v1 writes them: with a slash in front."""
        root = Path(self.path)
        if root.is_file():
            return ["/" + root.name]
        return sorted("/" + file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())

    def download(self, target_path: str | None = None, overwrite: bool = False) -> list[str]:
        """Copy the files to a folder."""
        root = Path(self.path)
        base = root.parent if root.is_file() else root
        target = Path(target_path or ".").absolute()
        copied = []
        for name in self.to_path():
            wanted = target / name[1:]
            if wanted.exists() and not overwrite:
                raise JobError(f"{wanted} exists already", "Pass overwrite=True, or choose another folder.")
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(base / name[1:], wanted)
            copied.append(str(wanted))
        return copied


class DatasetConsumptionConfig:
    """A dataset together with its name in the job and how the job reaches it."""

    def __init__(self, name: str | None, dataset: FileDataset, mode: str = "ro_mount") -> None:
        self.name = name
        self.dataset = dataset
        self.mode = mode

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        _refuse_place(path_on_compute)
        return DatasetConsumptionConfig(self.name, self.dataset, "ro_mount")

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        _refuse_place(path_on_compute)
        return DatasetConsumptionConfig(self.name, self.dataset, "download")

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(name, self.dataset, self.mode)

    def to_input(self) -> dict[str, Any]:
        """The input of a job file."""
        kind = "uri_file" if Path(self.dataset.path).is_file() else "uri_folder"
        return {"type": kind, "path": self.dataset.path, "mode": self.mode}


class FileDatasetFactory:
    """`Dataset.File`."""

    @staticmethod
    def from_files(path: _Location | list[_Location], validate: bool = True, **kwargs: Any) -> FileDataset:
        """A dataset of one local file or folder, or of a path in a datastore."""
        if isinstance(path, list):
            if len(path) != 1:
                raise JobError(f"{len(path)} paths cannot be one input", "Make one dataset for each.")
            path = path[0]
        location = _local_path(path)
        dataset = FileDataset(location)
        if validate and not Path(dataset.path).exists():
            raise JobError(f"there is no file or folder {dataset.path}", "Pass validate=False if it comes later.")
        return dataset


class Dataset:
    """Datasets by kind."""

    File = FileDatasetFactory


def _local_path(path: _Location) -> str:
    if isinstance(path, tuple):
        datastore, inner = path
        return datastore.path(inner).local_path
    if isinstance(path, DataPath):
        return path.local_path
    text = os.fspath(path)
    if "://" in text:
        raise JobError(f"{text!r} cannot be read yet", "Datasets are local files and folders; download it first.")
    return text


def _refuse_place(path_on_compute: str | None) -> None:
    if path_on_compute is not None:
        raise JobError(
            f"path_on_compute={path_on_compute!r} cannot be chosen", "The script gets the path as its argument."
        )
