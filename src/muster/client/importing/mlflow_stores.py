"""MLflow's stores: a folder of files (`mlruns`), or a tracking server; an SQLite file has its own module."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import yaml

from muster.client.importing.mlflow_calls import SCHEME, MlflowCalls, Record, records
from muster.wire.codec import Json

_STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_PAGE = 1000


@dataclass(frozen=True)
class Point:
    """One value of a metric."""

    key: str
    value: Json
    timestamp: int
    step: int


@dataclass(frozen=True)
class StoredRun:
    """A run of another store."""

    id: str
    experiment: str
    name: str
    user: str
    status: str
    started: int
    ended: int | None
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: tuple[str, ...]
    artifact_root: str = field(default="", repr=False)


class MlflowStore(Protocol):
    """The interface of a store."""

    def runs(self) -> Iterator[StoredRun]: ...
    def history(self, run: StoredRun, metric: str) -> Iterator[Point]: ...
    def artifacts(self, run: StoredRun) -> Iterator[str]: ...
    def open(self, run: StoredRun, path: str) -> object: ...


class FileStore:
    """An `mlruns` folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def runs(self) -> Iterator[StoredRun]:
        for folder in sorted(self._folder.iterdir()):
            about = _yaml(folder / "meta.yaml") if folder.is_dir() and not folder.name.startswith(".") else {}
            if "experiment_id" not in about or about.get("lifecycle_stage") == "deleted":
                continue
            for run in sorted(folder.iterdir()):
                meta = _yaml(run / "meta.yaml") if run.is_dir() else {}
                if "run_id" in meta or "run_uuid" in meta:
                    yield self._run(run, meta, str(about.get("name") or folder.name))

    def history(self, run: StoredRun, metric: str) -> Iterator[Point]:
        with (Path(run.artifact_root).parent / "metrics" / metric).open() as lines:
            for line in lines:
                parts = line.split()
                if len(parts) >= 2:
                    step = int(parts[2]) if len(parts) > 2 else 0
                    yield Point(metric, parts[1], int(float(parts[0])), step)

    def artifacts(self, run: StoredRun) -> Iterator[str]:
        yield from names_below(Path(run.artifact_root))

    @contextmanager
    def open(self, run: StoredRun, path: str) -> Iterator[IO[bytes]]:
        with (Path(run.artifact_root) / path).open("rb") as stream:
            yield stream

    def _run(self, folder: Path, meta: Mapping[str, Json], experiment: str) -> StoredRun:
        tags = _texts(folder / "tags")
        status, ended = meta.get("status"), meta.get("end_time")
        return StoredRun(
            str(meta.get("run_id") or meta.get("run_uuid")),
            experiment,
            str(meta.get("run_name") or tags.get("mlflow.runName") or ""),
            str(meta.get("user_id") or ""),
            _STATUSES.get(status, "FINISHED") if isinstance(status, int) else str(status or "FINISHED"),
            int(str(meta.get("start_time") or 0)),
            None if ended is None else int(str(ended)),
            _texts(folder / "params"),
            tags,
            tuple(names_below(folder / "metrics")),
            # The current folder of the files: the store may have been moved since.
            str(folder / "artifacts"),
        )


class ServerStore:
    """A tracking server."""

    def __init__(self, calls: MlflowCalls) -> None:
        self._calls = calls

    def runs(self) -> Iterator[StoredRun]:
        found = self._calls.each_got("experiments/search", "experiments", max_results=_PAGE, view_type="ACTIVE_ONLY")
        for experiment in list(found):
            body: Record = {"experiment_ids": [experiment["experiment_id"]], "max_results": _PAGE}
            for run in self._calls.each("runs/search", "runs", body):
                yield _of_server(run, str(experiment["name"]))

    def history(self, run: StoredRun, metric: str) -> Iterator[Point]:
        query: dict[str, str | int] = {"run_id": run.id, "metric_key": metric, "max_results": 10_000}
        for item in self._calls.each_got("metrics/get-history", "metrics", **query):
            yield Point(metric, item["value"], int(str(item["timestamp"])), int(str(item.get("step") or 0)))

    def artifacts(self, run: StoredRun) -> Iterator[str]:
        if run.artifact_root.startswith(SCHEME):
            yield from self._calls.artifacts(run.artifact_root.removeprefix(SCHEME).lstrip("/"))

    @contextmanager
    def open(self, run: StoredRun, path: str) -> Iterator[IO[bytes]]:
        root = run.artifact_root.removeprefix(SCHEME).lstrip("/")
        with self._calls.download(root, path) as response:
            yield response


def _of_server(run: Record, experiment: str) -> StoredRun:
    info, data = run.get("info") or {}, run.get("data") or {}
    assert isinstance(info, Mapping) and isinstance(data, Mapping)
    ended = info.get("end_time")
    return StoredRun(
        str(info.get("run_id")),
        experiment,
        str(info.get("run_name") or ""),
        str(info.get("user_id") or ""),
        str(info.get("status") or "FINISHED"),
        int(str(info.get("start_time") or 0)),
        None if ended is None else int(str(ended)),
        {str(item["key"]): str(item["value"]) for item in records(data, "params")},
        {str(item["key"]): str(item["value"]) for item in records(data, "tags")},
        tuple(str(item["key"]) for item in records(data, "metrics")),
        str(info.get("artifact_uri") or ""),
    )


def _yaml(file: Path) -> Mapping[str, Json]:
    try:
        found = yaml.safe_load(file.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def names_below(folder: Path) -> Iterator[str]:
    """Every file below a folder, by its path from there."""
    for base, _, names in os.walk(folder):
        for name in sorted(names):
            yield Path(base, name).relative_to(folder).as_posix()


def _texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text(errors="replace") for name in names_below(folder)}
