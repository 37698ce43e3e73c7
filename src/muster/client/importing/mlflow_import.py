"""Imports runs of an MLflow store into the workspace; runs that were imported before are left unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from muster.client.importing.mlflow_address import Store
from muster.client.importing.mlflow_calls import SCHEME, MlflowCalls, Record, records
from muster.client.importing.mlflow_stores import Point, StoredRun
from muster.errors import NotFound
from muster.wire.codec import Json

SOURCE_TAG = "mlflow.importedFrom"
"""The id of the run in its original store."""
_BATCH = 1000
_LABELS = 100


class Importer:
    """Imports runs one after another."""

    def __init__(self, store: Store, target: MlflowCalls, say: Callable[[str], None]) -> None:
        self._store = store
        self._target = target
        self._say = say
        self._experiments: dict[str, str] = {}
        self._known: dict[str, set[str]] = {}

    def run(self) -> tuple[int, int]:
        """How many runs were imported, and how many were here already."""
        imported = known = 0
        for stored in self._store.runs():
            experiment = self._experiment(stored.experiment)
            if stored.id in self._known[experiment]:
                known += 1
                continue
            self._import(stored, experiment)
            self._say(f"{stored.experiment}: {stored.name or stored.id}")
            imported += 1
        return imported, known

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            try:
                found = _part(self._target.get("experiments/get-by-name", experiment_name=name), "experiment")
                number = str(found["experiment_id"])
            except NotFound:
                number = str(self._target.post("experiments/create", {"name": name})["experiment_id"])
            self._experiments[name] = number
            self._known[number] = set(self._imported(number))
        return self._experiments[name]

    def _imported(self, experiment: str) -> Iterator[str]:
        """Completely imported runs; an interrupted import is repeated."""
        body: Record = {
            "experiment_ids": [experiment],
            "filter": f"tags.`{SOURCE_TAG}` != '' AND attributes.status != 'RUNNING'",
        }
        for run in self._target.each("runs/search", "runs", body):
            tags = records(_part(run, "data"), "tags")
            yield from (str(tag["value"]) for tag in tags if tag["key"] == SOURCE_TAG)

    def _import(self, stored: StoredRun, experiment: str) -> None:
        tags = {**stored.tags, SOURCE_TAG: stored.id}
        made = self._target.post(
            "runs/create",
            {
                "experiment_id": experiment, "user_id": stored.user, "run_name": stored.name,
                "start_time": stored.started, "tags": [],
            },
        )  # fmt: skip
        info = _part(_part(made, "run"), "info")
        run_id, root = str(info["run_id"]), str(info["artifact_uri"]).removeprefix(SCHEME)
        for name, labels in (("params", stored.params), ("tags", tags)):
            pairs: list[Json] = [{"key": key, "value": value} for key, value in labels.items() if key]
            for begin in range(0, len(pairs), _LABELS):
                self._target.post("runs/log-batch", {"run_id": run_id, name: pairs[begin : begin + _LABELS]})
        for metric in stored.metrics:
            self._metric(run_id, self._store.history(stored, metric))
        for path in self._store.artifacts(stored):
            with self._store.open(stored, path) as stream:
                self._target.upload(root, path, stream)
        # Last, so that an interrupted import is recognized.
        end: Json = stored.ended if stored.ended is not None else stored.started
        status = stored.status if stored.status in ("FINISHED", "FAILED", "KILLED") else "KILLED"
        self._target.post("runs/update", {"run_id": run_id, "status": status, "end_time": end})

    def _metric(self, run_id: str, points: Iterator[Point]) -> None:
        while some := list(islice(points, _BATCH)):
            metrics: list[Json] = [
                {"key": item.key, "value": item.value, "timestamp": item.timestamp, "step": item.step} for item in some
            ]
            self._target.post("runs/log-batch", {"run_id": run_id, "metrics": metrics})


def _part(found: Record, name: str) -> Record:
    part = found.get(name)
    assert isinstance(part, dict)
    return part
