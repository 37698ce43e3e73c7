"""The models that answer requests: a script's `run()`, an MLflow model, a TorchScript file."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional

from muster.scoring import layout, script
from muster.scoring.serve.body import BadInput
from muster.scoring.serve.http import Headers, is_raw
from muster.scoring.serve.mlflow_requests import json_value, on_frames, version_of
from muster.scoring.serve.schema import HEADERS, Schema, schema_of
from muster.scoring.serve.settings import Settings


class Model:
    """One loaded model: `run` takes the body's text, a list of them with batching, or the request with `@rawhttp`."""

    def __init__(
        self,
        init: Callable[[], Any],
        run: Callable[..., Any],
        mlflow_version: str = "",
        schema: Optional[Schema] = None,
    ) -> None:
        self.init = init
        self.run = run
        self.is_raw = is_raw(run)
        self.takes_headers = HEADERS in inspect.signature(run).parameters
        self.mlflow_version = mlflow_version
        """The version of MLflow that made it; empty for any other model."""
        self.schema = schema
        """If decorators give one: `run` takes the values of the body's JSON object by name."""

    def call(self, data: Any, headers: Mapping[str, str]) -> Any:
        more = {HEADERS: Headers(headers)} if self.takes_headers else {}
        if self.schema is not None:
            return self.run(**self.schema.arguments(data), **more)
        return self.run(data, **more)


def load(settings: Settings) -> Model:
    """The model named by the run's inputs and settings; raises BadScript."""
    path = layout.tell()
    if settings.script:
        return _of_script(settings)
    if script.is_mlflow(path):
        loaded = script.mlflow_model(path)
        return Model(loaded.init, on_frames(loaded.run), mlflow_version=version_of(path))
    file = _torchscript(Path(path))
    if file is not None:
        return _torch(file)
    raise script.BadScript(
        "{} is neither an MLflow model nor a TorchScript file: give a script".format(path or "nothing")
    )


def _of_script(settings: Settings) -> Model:
    loaded = script.load(settings.script)
    schema = schema_of(loaded.run)
    if schema is not None and is_raw(loaded.run):
        raise script.BadScript("run() has both @rawhttp and @input_schema: leave one of them out")
    if schema is not None and settings.max_batch > 1:
        raise script.BadScript("with max_batch run() gets a list of bodies, which @input_schema has no word for")
    return Model(loaded.init, loaded.run, schema=schema)


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
