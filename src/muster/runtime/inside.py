"""Workspaces, data and models of v1 scripts inside a run, without calls to a server.

Inputs are found by name, models are registered through the run; anything else raises an error with advice.
"""

import importlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from muster.errors import MusterError
from muster.runtime.run import PendingModel, Run
from muster.runtime.workspace import Workspace, unavailable


class _Elsewhere(type):
    """The type of a name that has no meaning inside a run: it can be imported, and using it raises an error."""

    hint = "Do it where the job is submitted, with `muster`."

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise unavailable(cls.__name__, cls.hint)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise unavailable("{}.{}".format(cls.__name__, name), cls.hint)


def elsewhere(name: str) -> type:
    """What `from azureml.core import NAME` gives inside a run for a name that is for submitting jobs."""
    return _Elsewhere(name, (), {"__doc__": "Has no meaning inside a run."})


class Dataset:
    """Data of the run: its inputs, by name."""

    @staticmethod
    def get_by_name(workspace: Any, name: str, version: Any = "latest") -> "InputDataset":
        return InputDataset(name)

    @staticmethod
    def get_by_id(workspace: Any, id: str, **kwargs: Any) -> "InputDataset":
        return InputDataset(id)

    class File:
        @staticmethod
        def from_files(path: Any, validate: bool = True, **kwargs: Any) -> "InputDataset":
            return InputDataset("", _one_path(path))

    class Tabular:
        @staticmethod
        def from_delimited_files(path: Any, validate: bool = True, **kwargs: Any) -> "InputDataset":
            return InputDataset("", _one_path(path))

        from_parquet_files = from_json_lines_files = from_delimited_files


class InputDataset:
    """A file or folder that the run has as an input."""

    def __init__(self, name: str, path: str = "") -> None:
        self.name = name
        # v1 passes a dataset's id in the arguments; here it is a path.
        found = path or (name if "/" in name and Path(name).exists() else _input(name))
        if not Path(found).exists():
            raise MusterError("{} is not on this node".format(found), "Give it to the job as an input.")
        self._path = Path(found)

    def download(self, target_path: Optional[str] = None, overwrite: bool = False) -> List[str]:
        """The paths of the files; they are on the node, so they are only copied if a folder is given."""
        files = self._files()
        if target_path is None:
            return [str(file) for file in files]
        target, base = Path(target_path), self._path.parent if self._path.is_file() else self._path
        copied = []
        for file in files:
            wanted = target / file.relative_to(base)
            if wanted.exists() and not overwrite:
                raise MusterError("{} exists already".format(wanted), "Pass overwrite=True, or choose another folder.")
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(file), str(wanted))
            copied.append(str(wanted))
        return copied

    def to_path(self) -> List[str]:
        base = self._path.parent if self._path.is_file() else self._path
        return ["/" + file.relative_to(base).as_posix() for file in self._files()]

    def mount(self, mount_point: Optional[str] = None) -> "MountedDataset":
        return MountedDataset(str(self._path))

    def to_pandas_dataframe(self) -> Any:
        """The rows of its CSV, JSON-lines or Parquet files, one after the other."""
        pandas = importlib.import_module("pandas")
        readers = {".parquet": pandas.read_parquet, ".jsonl": lambda file: pandas.read_json(file, lines=True)}
        found = [readers.get(file.suffix, pandas.read_csv)(file) for file in self._files()]
        return pandas.concat(found, ignore_index=True)

    def as_named_input(self, name: str) -> "InputDataset":
        return self

    as_mount = as_download = as_hdfs = lambda self, *args, **kwargs: self

    def _files(self) -> List[Path]:
        if self._path.is_file():
            return [self._path]
        return sorted(file for file in self._path.rglob("*") if file.is_file())


class InputPath(str):
    """The path of an input, which v1 scripts use as text or as a dataset."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(InputDataset("", str(self)), name)


class MountedDataset:
    """The result of `dataset.mount()`: the path exists already."""

    def __init__(self, path: str) -> None:
        self.mount_point = path

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def __enter__(self) -> "MountedDataset":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class Model:
    """Models: registered through the run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise unavailable("looking up a model", "Give the model to the job as an input.")

    @staticmethod
    def register(
        workspace: Any = None,
        model_path: str = "",
        model_name: str = "",
        tags: Optional[Mapping[str, Any]] = None,
        properties: Optional[Mapping[str, Any]] = None,
        description: Optional[str] = None,
        **kwargs: Any,
    ) -> PendingModel:
        """Keep a local file or folder with the run and register it; it gets its version once the files are stored."""
        run, source = Run.get_context(), Path(model_path)
        if not source.exists():
            raise MusterError("there is no file or folder {}".format(model_path), "Correct model_path.")
        stored = "outputs/models/{}/{}".format(model_name, source.resolve().name)
        if source.is_dir():
            run.upload_folder(stored, str(source))
        else:
            run.upload_file(stored, str(source))
        return run.register_model(model_name, stored, tags, properties, description)

    @staticmethod
    def get_model_path(model_name: str, version: Optional[int] = None, _workspace: Any = None) -> str:
        """The path of the model that the job serves under this name, or has as an input of this name."""
        served: Dict[str, str] = json.loads(os.environ.get("MUSTER_MODEL_PATHS") or "{}")
        return served[model_name] if model_name in served else _input(model_name)


class Datastore(metaclass=_Elsewhere):
    """Datastores are used where the job is submitted."""

    hint = "Give the script its data as inputs (`run.input_datasets`), and write results as outputs."


Experiment = elsewhere("Experiment")
Environment = elsewhere("Environment")


def _one_path(path: Any) -> str:
    given = path[0] if isinstance(path, (list, tuple)) and len(path) == 1 else path
    if isinstance(given, str) and "://" not in given:
        return given
    raise unavailable("reading {!r}".format(path), "Give it to the job as an input, and use its path.")


def _input(name: str) -> str:
    known: Dict[str, str] = Run.get_context().input_datasets
    # A data asset can be an input under another name; it is also found by its own.
    assets: Dict[str, str] = json.loads(os.environ.get("MUSTER_ASSETS") or "{}")
    given = [assets.get(candidate, "") for candidate in (name, name.replace(" ", "-"))]
    for candidate in (name, name.replace("-", "_"), name.replace(" ", "_"), *given):
        if candidate in known:
            return known[candidate]
    raise MusterError(
        "the run has no input {!r}; it has: {}".format(name, ", ".join(sorted(known)) or "none"),
        "Declare it under `inputs` of the job, or pass the dataset in the arguments with as_named_input({!r}).".format(
            name.replace("-", "_")
        ),
    )


__all__ = ["Dataset", "Datastore", "Environment", "Experiment", "Model", "Workspace"]
