"""Runs without ranks, which a process outside the cluster begins, logs to and ends, as MLflow's clients do."""

from __future__ import annotations

import time
from collections.abc import Mapping

from muster.client.api import Client
from muster.client.importing.mlflow_calls import MlflowCalls, Record, records
from muster.errors import NotFound
from muster.wire.codec import Json
from muster.wire.tracking import PARENT_TAG


def started_run(client: Client, experiment: str, name: str = "", parent: str | None = None) -> str:
    """Begin a run in an experiment; returns its id."""
    calls = MlflowCalls(client.calls.address)
    try:
        tags: list[Json] = [{"key": PARENT_TAG, "value": parent}] if parent else []
        body: Record = {
            "experiment_id": _experiment(calls, experiment),
            "run_name": name,
            "start_time": _now(),
            "tags": tags,
        }
        return _info(calls.post("runs/create", body)["run"])["run_id"]
    finally:
        calls.close()


def end_run(client: Client, run_id: str, status: str) -> None:
    """End such a run: FINISHED, FAILED or KILLED."""
    calls = MlflowCalls(client.calls.address)
    try:
        calls.post("runs/update", {"run_id": run_id, "status": status, "end_time": _now()})
    finally:
        calls.close()


def children(client: Client, experiment: str, run_id: str | None = None) -> list[str]:
    """The child runs of a run in an experiment, newest first; without a run all that have a parent."""
    calls = MlflowCalls(client.calls.address)
    try:
        wanted = f"tags.`{PARENT_TAG}` " + ("LIKE '%'" if run_id is None else f"= '{run_id}'")
        body: Record = {"experiment_ids": [_experiment(calls, experiment)], "filter": wanted}
        return [_info(run)["run_id"] for run in calls.each("runs/search", "runs", body)]
    finally:
        calls.close()


def parent(client: Client, run_id: str) -> str | None:
    """The parent of a run that was logged by a process; None for a submitted job."""
    calls = MlflowCalls(client.calls.address)
    try:
        run = calls.get("runs/get", run_id=run_id)["run"]
        data = run.get("data") if isinstance(run, Mapping) else None
        tags = {
            str(tag["key"]): str(tag["value"]) for tag in records(data if isinstance(data, Mapping) else {}, "tags")
        }
        return tags.get(PARENT_TAG)
    finally:
        calls.close()


def _info(run: Json) -> Mapping[str, str]:
    info = run.get("info") if isinstance(run, Mapping) else None
    assert isinstance(info, Mapping)
    return {key: str(value) for key, value in info.items()}


def _experiment(calls: MlflowCalls, name: str) -> str:
    try:
        found = calls.get("experiments/get-by-name", experiment_name=name)["experiment"]
        assert isinstance(found, dict)
        return str(found["experiment_id"])
    except NotFound:
        return str(calls.post("experiments/create", {"name": name})["experiment_id"])


def _now() -> int:
    return int(time.time() * 1000)
