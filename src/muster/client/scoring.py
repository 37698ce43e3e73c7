"""Inputs of batch scoring: the data, and the version of a model."""

from __future__ import annotations

from pathlib import Path

from muster.client.api import Client
from muster.client.models import Models, registered_input
from muster.client.storage import Storage
from muster.errors import JobError
from muster.job.endpoints.models import ModelInput
from muster.job.rules import is_address
from muster.storage.addresses import parse_address
from muster.wire.serving.batch import DataType


def data_input(client: Client, given: str) -> tuple[str, DataType]:
    """The input for data to be scored, as a file or a folder; for a local path that is detected."""
    if not is_address(given):
        found = Path(given).expanduser().resolve()
        if not found.exists():
            raise JobError(f"there is no file or folder {given} to score", "Correct --input.")
        return str(found), "uri_folder" if found.is_dir() else "uri_file"
    location = parse_address(given)
    is_file = location.kind == "datastore" and Storage(client.calls).is_file(location.store, location.path)
    return given, "uri_file" if is_file else "uri_folder"


def model_input(client: Client, model: str, has_script: bool) -> ModelInput:
    """The job's input for a model; a registered one in the version that the reference means now."""
    is_local = not is_address(model) and Path(model).expanduser().exists()
    if is_local or model.startswith("runs:/") or "://" in model:
        return ModelInput.at(str(Path(model).expanduser().resolve()) if is_local else model)
    found = Models(client.calls).details(model).model
    if not has_script and found.type != "mlflow_model":
        raise JobError(
            f"{model} is a {found.type}, which does not say how to run it", "Give a script with init() and run()."
        )
    return registered_input(found)
