"""What answers requests: a script's `run()`, an MLflow model, a TorchScript file."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from typing import Any, Callable, List, Mapping

from muster.scoring import script
from muster.scoring.serve.http import RAW
from muster.scoring.serve.mlflow_requests import BadInput, json_value, on_frames, version_of
from muster.scoring.serve.settings import Settings

__all__ = ["BadInput", "Model", "load"]


class Model:
    """One loaded model: `run` takes the body's text, a list of them with batching, or the request with `@rawhttp`."""

    def __init__(self, init: Callable[[], Any], run: Callable[..., Any], mlflow_version: str = "") -> None:
        self.init = init
        self.run = run
        self.is_raw = bool(getattr(run, RAW, False)) or getattr(run, "__rawhttp__", False)
        self.takes_headers = "request_headers" in inspect.signature(run).parameters
        self.mlflow_version = mlflow_version
        """Of the MLflow that made it; empty for any other model."""

    def call(self, data: Any, headers: Mapping[str, str]) -> Any:
        return self.run(data, request_headers=dict(headers)) if self.takes_headers else self.run(data)


def load(settings: Settings) -> Model:
    """The model that the run's inputs and settings name; raises BadScript."""
    path = os.environ.get("MUSTER_INPUT_model", "")
    script.set_model_dir(path)
    if settings.script:
        loaded = script.load(settings.script)
        return Model(loaded.init, loaded.run)
    if script.is_mlflow(path):
        loaded = script.mlflow_model(path)
        return Model(loaded.init, on_frames(loaded.run), mlflow_version=version_of(path))
    file = _torchscript(Path(path))
    if file is not None:
        return _torch(file)
    raise script.BadScript(
        "{} is neither an MLflow model nor a TorchScript file: give a script".format(path or "nothing")
    )


def _torchscript(path: Path) -> Any:
    found = (
        [path] if path.is_file() else sorted(path.glob("*.pt")) + sorted(path.glob("*.pth")) if path.is_dir() else []
    )
    return found[0] if len(found) == 1 else None


def _torch(file: Path) -> Model:
    """A TorchScript file: a list of numbers in, a list of numbers out."""
    held: List[Any] = []

    def init() -> None:
        torch = importlib.import_module("torch")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        held.extend([torch, torch.jit.load(str(file), map_location=device).eval(), device])

    def run(data: str) -> Any:
        torch, model, device = held
        given = json_value(data)
        if isinstance(given, Mapping):
            given = next((given[key] for key in ("data", "instances", "inputs", "input_data") if key in given), None)
        try:
            tensor = torch.tensor(given, device=device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise BadInput("the data is no array of numbers: {}".format(error)) from None
        if not tensor.is_floating_point():
            tensor = tensor.float()
        with torch.inference_mode():
            return model(tensor).tolist()

    return Model(init, run)
