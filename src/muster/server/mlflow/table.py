"""Every endpoint of MLflow that is supported, by method and path below `/api/2.0/mlflow/`."""

from __future__ import annotations

from collections.abc import Mapping

from muster.server.mlflow import artifacts, experiments, histories, logged_models, registry, runs
from muster.server.mlflow.protocol import Handler

READS: Mapping[tuple[str, str], Handler] = {
    ("GET", "metrics/get-history"): histories.get,
    ("GET", "metrics/get-history-bulk"): histories.bulk,
    ("GET", "metrics/get-history-bulk-interval"): histories.interval,
    ("GET", "artifacts/list"): artifacts.list_of_run,
}
"""Endpoints that only read, and so do not wait for writes."""

CALLS: Mapping[tuple[str, str], Handler] = {
    ("POST", "experiments/create"): experiments.create,
    ("GET", "experiments/get"): experiments.get,
    ("GET", "experiments/get-by-name"): experiments.get_by_name,
    ("GET", "experiments/search"): experiments.search,
    ("POST", "experiments/search"): experiments.search,
    ("GET", "experiments/list"): experiments.search,
    ("POST", "experiments/update"): experiments.change,
    ("POST", "experiments/delete"): experiments.delete,
    ("POST", "experiments/restore"): experiments.restore,
    ("POST", "experiments/set-experiment-tag"): experiments.set_tag,
    ("POST", "experiments/delete-experiment-tag"): experiments.delete_tag,
    ("POST", "runs/create"): runs.create,
    ("GET", "runs/get"): runs.get,
    ("POST", "runs/search"): runs.search,
    ("POST", "runs/update"): runs.change,
    ("POST", "runs/delete"): runs.delete,
    ("POST", "runs/restore"): runs.restore,
    ("POST", "runs/log-metric"): runs.log_metric,
    ("POST", "runs/log-parameter"): runs.log_param,
    ("POST", "runs/log-batch"): runs.log_batch,
    ("POST", "runs/set-tag"): runs.set_tag,
    ("POST", "runs/delete-tag"): runs.delete_tag,
    ("POST", "runs/log-model"): runs.log_model,
    ("POST", "runs/log-inputs"): runs.log_inputs,
    ("POST", "runs/outputs"): runs.log_outputs,
    ("POST", "logged-models"): logged_models.create,
    ("POST", "logged-models/search"): logged_models.search,
    ("GET", "logged-models/{model_id}"): logged_models.get,
    ("PATCH", "logged-models/{model_id}"): logged_models.finalize,
    ("DELETE", "logged-models/{model_id}"): logged_models.delete,
    ("POST", "logged-models/{model_id}/params"): logged_models.log_params,
    ("PATCH", "logged-models/{model_id}/tags"): logged_models.set_tags,
    ("DELETE", "logged-models/{model_id}/tags/{tag_key}"): logged_models.delete_tag,
    ("POST", "registered-models/create"): registry.create,
    ("GET", "registered-models/get"): registry.get,
    ("GET", "registered-models/search"): registry.search,
    ("PATCH", "registered-models/update"): registry.change,
    ("POST", "registered-models/rename"): registry.rename,
    ("DELETE", "registered-models/delete"): registry.delete,
    ("GET", "registered-models/get-latest-versions"): registry.latest_versions,
    ("POST", "registered-models/get-latest-versions"): registry.latest_versions,
    ("POST", "registered-models/set-tag"): registry.set_tag,
    ("DELETE", "registered-models/delete-tag"): registry.delete_tag,
    ("GET", "registered-models/alias"): registry.by_alias,
    ("POST", "registered-models/alias"): registry.set_alias,
    ("DELETE", "registered-models/alias"): registry.delete_alias,
    ("POST", "model-versions/create"): registry.create_version,
    ("GET", "model-versions/get"): registry.get_version,
    ("GET", "model-versions/search"): registry.search_versions,
    ("PATCH", "model-versions/update"): registry.change_version,
    ("DELETE", "model-versions/delete"): registry.delete_version,
    ("GET", "model-versions/get-download-uri"): registry.download_uri,
    ("POST", "model-versions/transition-stage"): registry.transition,
    ("POST", "model-versions/set-tag"): registry.set_version_tag,
    ("DELETE", "model-versions/delete-tag"): registry.delete_version_tag,
}


def resolve(method: str, path: str) -> tuple[Handler, bool, Mapping[str, str]] | None:
    """The handler of a call, whether it only reads, and the parts of its path that are arguments."""
    path = path.strip("/")
    if found := READS.get((method, path)):
        return found, True, {}
    if found := CALLS.get((method, path)):
        return found, False, {}
    parts = path.split("/")
    for (verb, template), handler in CALLS.items():
        names = template.split("/")
        if verb == method and "{" in template and len(names) == len(parts):
            pairs = list(zip(names, parts, strict=True))
            if all(name.startswith("{") or name == part for name, part in pairs):
                return handler, False, {name.strip("{}"): part for name, part in pairs if name.startswith("{")}
    return None
