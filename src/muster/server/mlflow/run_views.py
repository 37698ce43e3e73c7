"""Runs in MLflow's form."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select

from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import RunRow
from muster.server.mlflow import experiments, filters
from muster.server.mlflow.protocol import ABSENT, Answer, MlflowError, milliseconds, pairs
from muster.server.tracking.labels import load_params, load_tool_tags
from muster.wire import states
from muster.wire.codec import Json

_STATUS = {
    states.COMPLETED: "FINISHED", states.FAILED: "FAILED", states.CANCELED: "KILLED", states.QUEUED: "SCHEDULED",
    states.PROVISIONING: "SCHEDULED", states.PREPARING: "SCHEDULED",
}  # fmt: skip
INPUTS, OUTPUTS, DELETED = "mlflow.muster.inputs", "mlflow.muster.outputs", "mlflow.muster.deleted"
"""Tags that hold MLflow's other data on a run."""
_HIDDEN = (INPUTS, OUTPUTS, DELETED)
_ROWS = 500
Reader = Connection | Transaction


@dataclass(frozen=True)
class MlflowRun:
    """A run with everything that MLflow shows."""

    row: RunRow
    experiment_id: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    hidden: Mapping[str, str]
    metrics: Mapping[str, Row[Any]]
    """For each metric, the series with its latest value."""

    @property
    def is_deleted(self) -> bool:
        return DELETED in self.hidden

    @property
    def view(self) -> Answer:
        inputs = json.loads(self.hidden.get(INPUTS, "{}"))
        data = {
            "metrics": [_metric(row) for _, row in sorted(self.metrics.items())],
            "params": pairs(self.params),
            "tags": pairs(self.tags),
        }
        return {
            "info": self.info,
            "data": data,
            "inputs": {"dataset_inputs": inputs.get("datasets", []), "model_inputs": inputs.get("models", [])},
            "outputs": {"model_outputs": json.loads(self.hidden.get(OUTPUTS, "[]"))},
        }

    @property
    def info(self) -> Answer:
        row = self.row
        shown = self.tags.get("mlflow.runName") or row.display_name or row.name or row.id
        return {
            "run_id": row.id,
            "run_uuid": row.id,
            "experiment_id": self.experiment_id,
            "run_name": shown,
            "user_id": row.submitted_by or "",
            "status": status_of(row),
            "start_time": milliseconds(row.started_at or row.created_at),
            **({"end_time": milliseconds(row.ended_at)} if row.ended_at is not None else {}),
            "artifact_uri": artifact_uri(self.experiment_id, row.id),
            "lifecycle_stage": "deleted" if self.is_deleted else "active",
        }


def status_of(row: RunRow) -> str:
    return _STATUS.get(row.status, "RUNNING")


def artifact_uri(experiment_id: str, run_id: str, path: str = "") -> str:
    """The address of a run's files for MLflow's clients."""
    return f"mlflow-artifacts:/{experiment_id}/{run_id}/artifacts" + (f"/{path}" if path else "")


def find(reader: Reader, run_id: str) -> RunRow:
    """A run by its full id."""
    row = reader.execute(select(tables.runs).where(tables.runs.c.id == run_id)).first()
    if row is None:
        raise MlflowError(ABSENT, f"Run with id={run_id} not found")
    return row


def load(transaction: Transaction, rows: Sequence[RunRow]) -> list[MlflowRun]:
    """Runs with their data, a few hundred at a time."""
    numbers = {name: experiments.number_of(transaction, name) for name in {row.experiment for row in rows}}
    found: list[MlflowRun] = []
    for begin in range(0, len(rows), _ROWS):
        part = rows[begin : begin + _ROWS]
        ids = [row.id for row in part]
        params, tools = (load_(transaction.connection, ids) for load_ in (load_params, load_tool_tags))
        metrics = _latest(transaction, ids)
        for row in part:
            own = tools.get(row.id, {})
            tags = {**row.tags, **{key: value for key, value in own.items() if key not in _HIDDEN}}
            hidden = {key: value for key, value in own.items() if key in _HIDDEN}
            found.append(
                MlflowRun(row, numbers[row.experiment], params.get(row.id, {}), tags, hidden, metrics.get(row.id, {}))
            )
    return found


def one(transaction: Transaction, run_id: str) -> MlflowRun:
    return load(transaction, [find(transaction, run_id)])[0]


def lookup(run: MlflowRun, kind: str, name: str) -> filters.Value:
    """The value of a run that a search refers to."""
    if kind == "metrics":
        return run.metrics[name].last_number if name in run.metrics else None
    if kind in ("params", "tags"):
        return (run.params if kind == "params" else run.tags).get(name)
    names = {"artifact_uri": "artifact_uri", "run_name": "run_name", "Run Name": "run_name", "run_id": "run_id"}
    info = run.info
    value = info.get({"created": "start_time", "Created": "start_time", **names}.get(name, name))
    return float(value) if isinstance(value, int) else None if value is None else str(value)


def _latest(transaction: Transaction, ids: Sequence[str]) -> dict[str, dict[str, Row[Any]]]:
    """For each metric the series that is furthest: by attempt, then step, then time."""
    series = tables.metric_series
    query = select(series).where(series.c.run_id.in_(ids), series.c.type == "scalar")
    found: dict[str, dict[str, Row[Any]]] = defaultdict(dict)
    for row in transaction.execute(query):
        known = found[row.run_id].get(row.name)
        if known is None or _progress(row) > _progress(known):
            found[row.run_id][row.name] = row
    return found


def _progress(row: Row[Any]) -> tuple[int, float, float, int]:
    # Among equal ranks the first one counts.
    return row.attempt, row.last_step if row.last_step is not None else -1.0, row.last_at, -row.number


def _metric(row: Row[Any]) -> Json:
    return {
        "key": row.name, "value": row.last, "timestamp": milliseconds(row.last_at) or 0,
        "step": int(row.last_step or 0),
    }  # fmt: skip
