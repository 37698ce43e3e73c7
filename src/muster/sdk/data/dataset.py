"""Files as inputs of a job, under v1's names."""

from __future__ import annotations

import copy
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from muster.client.storage import Storage
from muster.errors import Conflict, JobError
from muster.sdk.connected import Connected
from muster.sdk.data.datastore import DataPath, Datastore
from muster.sdk.data.gathering import gather, is_several
from muster.sdk.data.names import ByName, asset_name
from muster.sdk.notices import tell
from muster.storage.addresses import DEFAULT_DATASTORE, Location, datastore_address, parse_address
from muster.wire.data.access import FileEntry
from muster.wire.data.assets import AssetView, NewAsset

Step = Callable[[Any], Any]
"""A function from one data frame to another."""
_Source = str | os.PathLike[str] | DataPath | tuple[Datastore, str]


class FileDataset:
    """A file or folder that jobs read: local, in a datastore, at an address, or a data asset."""

    def __init__(self, path: str, workspace: Connected | None = None, is_file: bool | None = None) -> None:
        # v1 uses a pattern for "all files below"; a folder means the same.
        plain = path.removesuffix("/**").removesuffix("/*") or "/"
        self.location = parse_address(plain)
        self.workspace = workspace
        self.steps: tuple[Step, ...] = ()
        """The steps applied to its rows when they are read here."""
        self.path = str(Path(self.location.path).expanduser().absolute()) if self.is_local else plain
        self._is_file = is_file
        if any(letter in self.path for letter in "*?["):
            raise JobError(f"the pattern {path!r} cannot be an input", "Give the folder or the one file.")

    @property
    def name(self) -> str | None:
        """The name of the data asset; None if it is not registered."""
        return self.location.store if self.location.kind == "asset" else None

    @property
    def version(self) -> int | str | None:
        """The version of the data asset, as a number if it is one."""
        found = self.location.version if self.location.kind == "asset" else None
        return int(found) if found is not None and found.isdecimal() else found

    @property
    def is_local(self) -> bool:
        return self.location.kind == "local"

    @property
    def is_file(self) -> bool:
        """Whether it is a single file; looked up, if possible, when it was not given."""
        if self._is_file is not None:
            return self._is_file
        if self.is_local:
            return Path(self.path).is_file()
        if self.location.kind != "datastore" or self.workspace is None or not self.location.path:
            return self.location.kind == "http"
        self._is_file = self._storage().is_file(self.location.store, self.location.path)
        return self._is_file

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(name, self)

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(None, self).as_mount(path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        return DatasetConsumptionConfig(None, self).as_download(path_on_compute)

    def to_path(self) -> list[str]:
        """The files' paths below the dataset, as in v1: with a leading slash."""
        if not self.is_local:
            own_name = self.path.rstrip("/").rpartition("/")[2]
            return sorted("/" + (entry.path or own_name) for entry in self._remote_files())
        root = Path(self.path)
        if root.is_file():
            return ["/" + root.name]
        return sorted("/" + file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())

    def download(self, target_path: str | None = None, overwrite: bool = False) -> list[str]:
        """Copy the files to a folder."""
        target = Path(target_path or ".").absolute()
        names = self.to_path()
        for name in names:
            wanted = target / name[1:]
            if wanted.exists() and not overwrite:
                raise JobError(f"{wanted} exists already", "Pass overwrite=True, or choose another folder.")
        if not self.is_local:
            return self._download_remote(target)
        root = Path(self.path)
        base = root.parent if root.is_file() else root
        for name in names:
            (target / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(base / name[1:], target / name[1:])
        return [str(target / name[1:]) for name in names]

    def to_pandas_dataframe(self, on_error: str = "null", out_of_range_datetime: str = "null") -> Any:
        """The rows of its CSV, JSON-lines or Parquet files, one after the other; needs pandas."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(self.path)] if self.is_local and self.is_file else self._files_in(folder)
            return reduce(lambda frame, step: step(frame), self.steps, data_frame(files))

    @property
    def id(self) -> str:
        """The argument of `Dataset.get_by_id`: the address of the data asset, or the path."""
        return self.path

    def take(self, count: int) -> FileDataset:
        """The first rows, for `to_pandas_dataframe`; a job cannot have rows as an input."""
        return self._with(lambda frame: frame.head(count))

    def skip(self, count: int) -> FileDataset:
        """The rows without the first ones."""
        return self._with(lambda frame: frame.iloc[count:].reset_index(drop=True))

    def take_sample(self, probability: float, seed: int | None = None) -> FileDataset:
        """A random sample of about this share of the rows."""
        return self._with(lambda frame: frame.sample(frac=probability, random_state=seed).sort_index())

    def random_split(self, percentage: float, seed: int | None = None) -> tuple[FileDataset, FileDataset]:
        """Two random parts of the rows, the first of about this share."""
        # Both parts must be split in the same way, whenever they are read.
        fixed = seed if seed is not None else random.randrange(1 << 32)

        def chosen(frame: Any) -> Any:
            return frame.sample(frac=percentage, random_state=fixed).index

        first = self._with(lambda frame: frame.loc[chosen(frame)].sort_index().reset_index(drop=True))
        return first, self._with(lambda frame: frame.drop(chosen(frame)).reset_index(drop=True))

    def keep_columns(self, columns: str | list[str], validate: bool = False) -> FileDataset:
        """The dataset with only these columns."""
        return self._with(lambda frame: frame[[columns] if isinstance(columns, str) else columns])

    def drop_columns(self, columns: str | list[str]) -> FileDataset:
        """The dataset without these columns."""
        return self._with(lambda frame: frame.drop(columns=columns))

    def with_timestamp_columns(self, *args: Any, **kwargs: Any) -> FileDataset:
        """Kept for v1 scripts: the reader of the data decides which columns hold times."""
        return self

    def unregister_all_versions(self) -> None:
        """Refused: runs that read it would lose their data."""
        raise JobError(f"{self.path} stays registered", "`muster data` lists what can be removed.")

    def _with(self, step: Step) -> FileDataset:
        made = copy.copy(self)
        made.steps = (*self.steps, step)
        return made

    def mount(self, mount_point: str | None = None, **kwargs: Any) -> MountContext:
        """A folder with the files, inside the `with`."""
        return MountContext(self, mount_point)

    def _files_in(self, folder: str) -> list[Path]:
        return sorted(Path(name) for name in self.download(folder)) if not self.is_local else _below(Path(self.path))

    def register(
        self,
        workspace: Connected,
        name: str,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        create_new_version: bool = False,
    ) -> FileDataset:
        """Register it as a data asset, which never changes: a local file or folder is copied into the workspace."""
        storage = Storage(workspace.client.calls)
        kept = asset_name(name)
        newest = None if create_new_version else next(iter(storage.assets(kept)), None)
        # Registering the same data again returns the existing version, as when a notebook runs again.
        asset = NewAsset(kept, "", newest.version if newest else None, description=description, tags=tags or {})
        try:
            if self.is_local:
                return _asset(workspace, storage.upload_asset(Path(self.path), asset, DEFAULT_DATASTORE))
            kind = None if self.location.kind == "datastore" else "uri_file" if self.is_file else "uri_folder"
            return _asset(workspace, storage.create_asset(replace(asset, type=kind, address=self.path)))
        except Conflict as error:
            if newest is None:
                raise
            raise JobError(f"there is a dataset {name!r} with other data", "Pass create_new_version=True.") from error

    def _remote_files(self) -> tuple[FileEntry, ...]:
        storage = self._storage()
        if self.location.kind == "asset":
            return storage.manifest(self.location.store, self.location.version)
        return storage.files(self.location.store, self.location.path)

    def _download_remote(self, target: Path) -> list[str]:
        storage, location = self._storage(), self.location
        if location.kind == "asset":
            return [str(path) for path in storage.download_asset(location.store, location.version, target)[1]]
        return [str(path) for path in storage.download_path(location.store, location.path, target)]

    def _storage(self) -> Storage:
        if self.workspace is None or self.location.kind not in ("asset", "datastore"):
            raise JobError(
                f"{self.path} can be read by a job, not from here",
                "Make the dataset from a datastore: Dataset.File.from_files((datastore, path)).",
            )
        return Storage(self.workspace.client.calls)


class MountContext:
    """The result of `dataset.mount()`: a folder with the files, copied if necessary."""

    def __init__(self, dataset: FileDataset, mount_point: str | None) -> None:
        self._dataset = dataset
        self._own = mount_point is None and not dataset.is_local
        self.mount_point = mount_point or (tempfile.mkdtemp() if self._own else dataset.path)

    def start(self) -> None:
        if self.mount_point != self._dataset.path:
            self._dataset.download(self.mount_point, overwrite=True)

    def stop(self) -> None:
        if self._own:
            shutil.rmtree(self.mount_point, ignore_errors=True)

    def __enter__(self) -> MountContext:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


@dataclass
class DatasetConsumptionConfig:
    """A dataset with its name in the job and its access mode."""

    name: str | None
    dataset: FileDataset
    mode: str = "ro_mount"

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        _ignore_path(path_on_compute)
        return replace(self, mode="ro_mount")

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        _ignore_path(path_on_compute)
        return replace(self, mode="download")

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        return replace(self, name=name)

    def to_input(self) -> dict[str, str]:
        """The dataset as an input of a job file."""
        if self.dataset.steps:
            raise JobError(
                f"rows or columns of {self.dataset.path} cannot be an input",
                "Pass the dataset itself and choose in the script, or write to_pandas_dataframe() to a file first.",
            )
        kind = "uri_file" if self.dataset.is_file else "uri_folder"
        return {"type": kind, "path": self.dataset.path, "mode": self.mode}


class OutputFileDatasetConfig:
    """A folder that a script writes to; the script gets its path as an argument."""

    def __init__(
        self,
        name: str | None = None,
        destination: tuple[Datastore, str] | None = None,
        source: str | None = None,
        partition_format: str | None = None,
    ) -> None:
        self.name = name
        self.destination = destination
        self.mode = "rw_mount"
        self.registered_as: str | None = None

    def as_mount(self, disable_metadata_cache: bool = False) -> OutputFileDatasetConfig:
        return self._with_mode("rw_mount")

    def as_input(self, name: str | None = None) -> OutputFileDatasetConfig:
        """Refused: only pipelines pass one job's output to another as an input."""
        raise JobError(
            f"the output {self.name or ''} cannot be an input before its run has ended",
            "Call register_on_complete(name), and give the next job Dataset.get_by_name(workspace, name).",
        )

    def as_upload(self, overwrite: bool = False, source_globs: Any = None) -> OutputFileDatasetConfig:
        return self._with_mode("upload")

    def register_on_complete(
        self, name: str, description: str | None = None, tags: Any = None
    ) -> OutputFileDatasetConfig:
        """Register what the script wrote as a data asset once the run has completed."""
        made = self._with_mode(self.mode)
        made.registered_as = asset_name(name)
        return made

    def read_delimited_files(self, **kwargs: Any) -> OutputFileDatasetConfig:
        """Kept for v1 scripts: files stay files."""
        return self

    read_parquet_files = read_delimited_files

    def to_output(self, name: str) -> dict[str, str]:
        """The folder as the output `name` of a job file; its destination may hold {run-id} and {output-name}."""
        said = {"type": "uri_folder", "mode": self.mode}
        if self.destination is not None:
            store, path = self.destination
            filled = path.replace("{run-id}", "${{name}}").replace("{output-name}", name)
            said["path"] = datastore_address(store.name, filled)
        return {**said, "name": self.registered_as} if self.registered_as else said

    def _with_mode(self, mode: str) -> OutputFileDatasetConfig:
        made = OutputFileDatasetConfig(self.name, self.destination)
        made.mode, made.registered_as = mode, self.registered_as
        return made


class FileDatasetFactory:
    """`Dataset.File`."""

    @staticmethod
    def from_files(
        path: _Source | list[_Source], validate: bool = True, is_file: bool | None = None, **kwargs: Any
    ) -> FileDataset:
        """A dataset of files or folders: local, in a datastore, or at an address.

        Several paths or patterns are collected in a folder of this machine.
        """
        given = list(path) if isinstance(path, list) else [path]
        sources = [_source(item) for item in given]
        if is_several(sources):
            return FileDataset(str(gather(sources)), is_file=False)
        (source,) = sources
        if isinstance(source, DataPath):
            return in_datastore(source, is_file)
        dataset = FileDataset(source, is_file=is_file)
        if validate and dataset.is_local and not Path(dataset.path).exists():
            raise JobError(f"there is no file or folder {dataset.path}", "Pass validate=False if it comes later.")
        return dataset

    @staticmethod
    def upload_directory(
        src_dir: str | os.PathLike[str],
        target: DataPath | tuple[Datastore, str],
        pattern: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> FileDataset:
        """Copy a folder into a datastore and return it as a dataset."""
        store, path = target if isinstance(target, tuple) else (target.datastore, target.path_on_datastore)
        source = Path(src_dir)
        files = [str(file) for file in sorted(source.rglob(pattern or "*")) if file.is_file()]
        if not files:
            raise JobError(
                f"there is no file in {source}" + (f" for {pattern!r}" if pattern else ""), "Check the folder."
            )
        return in_datastore(store.upload_files(files, str(source), path, overwrite), is_file=False)


class TabularDatasetFactory:
    """`Dataset.Tabular`: files with rows; jobs get the files, and `to_pandas_dataframe` reads the rows."""

    @staticmethod
    def from_delimited_files(path: _Source | list[_Source], validate: bool = True, **kwargs: Any) -> FileDataset:
        """A dataset of a CSV file, or of a folder of them."""
        return FileDatasetFactory.from_files(path, validate)

    from_parquet_files = from_json_lines_files = from_delimited_files

    @staticmethod
    def register_pandas_dataframe(dataframe: Any, target: Any, name: str, **kwargs: Any) -> FileDataset:
        """Write a data frame into a datastore as Parquet, and register it."""
        store, path = target if isinstance(target, tuple) else (target, "")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.parquet"
            dataframe.to_parquet(file)
            made = store.upload_files([str(file)], folder, path or name, overwrite=True)
        return in_datastore(made, is_file=False).register(store.workspace, name, create_new_version=True)


class Dataset:
    """Datasets by kind."""

    File = FileDatasetFactory
    Tabular = TabularDatasetFactory

    @staticmethod
    def get_by_name(workspace: Connected, name: str, version: str | int = "latest") -> FileDataset:
        """A registered dataset, its newest version unless one is named."""
        wanted = None if version == "latest" else str(version)
        return _asset(workspace, Storage(workspace.client.calls).asset(asset_name(name), wanted))

    @staticmethod
    def get_by_id(workspace: Connected, id: str, **kwargs: Any) -> FileDataset:
        """A dataset by its `id`."""
        return FileDataset(id, workspace)

    @staticmethod
    def get_all(workspace: Connected) -> dict[str, FileDataset]:
        """The newest version of every registered dataset, by name."""
        found: dict[str, FileDataset] = ByName()
        for asset in Storage(workspace.client.calls).assets():
            found.setdefault(asset.name, _asset(workspace, asset))
        return found


def _source(item: _Source) -> str | DataPath:
    if isinstance(item, tuple):
        return DataPath(item[0], item[1])
    return item if isinstance(item, DataPath) else os.fspath(item)


def data_frame(files: Sequence[Path]) -> Any:
    """The rows of files, one after the other."""
    pandas = import_module("pandas")
    readers = {".parquet": pandas.read_parquet, ".jsonl": partial(pandas.read_json, lines=True)}
    return pandas.concat([readers.get(file.suffix, pandas.read_csv)(file) for file in files], ignore_index=True)


def _below(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def _asset(workspace: Connected, asset: AssetView) -> FileDataset:
    address = str(Location("asset", store=asset.name, version=asset.version))
    return FileDataset(address, workspace, is_file=asset.type == "uri_file")


def in_datastore(path: DataPath, is_file: bool | None) -> FileDataset:
    inner = path.path_on_datastore.removesuffix("/**").removesuffix("/*")
    address = datastore_address(path.datastore.name, inner)
    return FileDataset(address, path.datastore.workspace, is_file=False if inner != path.path_on_datastore else is_file)


def _ignore_path(path_on_compute: str | None) -> None:
    if path_on_compute is not None:
        tell(f"path_on_compute={path_on_compute!r} is not followed: the script gets the path as its argument")
