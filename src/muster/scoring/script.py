"""The user's scoring script: `init()` and `run(…)`, as in Azure ML; or an MLflow model, which needs none."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any, Callable, List, Optional

INIT_FAILED = 3
"""The exit code of a process whose `init()` failed, the same as in Azure ML's inference server."""


class BadScript(Exception):
    """A script that cannot be used, with the reason."""


class Script:
    """A loaded script."""

    def __init__(
        self, init: Callable[[], Any], run: Callable[..., Any], shutdown: Optional[Callable[[], Any]] = None
    ) -> None:
        self.init = init
        self.run = run
        self.shutdown = shutdown


def load(path: str, arguments: Optional[List[str]] = None) -> Script:
    """Import a script by its path; it sees `arguments` in `sys.argv`, and its own folder first on the path."""
    file = Path(path).resolve()
    if not file.is_file():
        raise BadScript("there is no script {}".format(path))
    sys.argv = [str(file), *(arguments or [])]
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, str(file))
    if spec is None or spec.loader is None:
        raise BadScript("{} is no Python script".format(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    init, run = getattr(module, "init", None), getattr(module, "run", None)
    if not callable(run):
        raise BadScript("{} has no function run()".format(path))
    _check_parameters(run, path)
    if init is not None and not callable(init):
        raise BadScript("init in {} is no function".format(path))
    return Script(init or _nothing, run, getattr(module, "shutdown", None))


def mlflow_model(folder: str) -> Script:
    """A model that MLflow loads by itself: `run` is its `predict`."""
    held: List[Any] = []

    def init() -> None:
        try:
            pyfunc = importlib.import_module("mlflow.pyfunc")
        except ImportError as error:
            raise BadScript("an MLflow model needs the package mlflow in its environment ({})".format(error)) from None
        held.append(pyfunc.load_model(folder))

    def run(data: Any) -> Any:
        return held[0].predict(data)

    return Script(init, run)


def is_mlflow(model: str) -> bool:
    return bool(model) and (Path(model) / "MLmodel").is_file()


def _check_parameters(run: Callable[..., Any], path: str) -> None:
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadScript("run() in {} takes {}, which cannot be filled by name".format(path, parameter))


def _nothing() -> None:
    pass
