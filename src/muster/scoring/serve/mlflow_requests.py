"""Requests in MLflow's forms, as its own server accepts them: JSON in five shapes, and CSV."""

from __future__ import annotations

import importlib
import io
import json
import re
from pathlib import Path
from typing import Any, Callable, Mapping

from muster.scoring.serve.body import BadInput
from muster.scoring.serve.collecting import Collector
from muster.scoring.serve.http import Answer

_VERSION = re.compile(r"^mlflow_version:\s*['\"]?([\w.+-]+)", re.MULTILINE)
_OWN_FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")


def on_frames(predict: Callable[..., Any]) -> Callable[[str], Any]:
    """Accepts MLflow's own forms of a request, as the DataFrame or array for `predict`."""
    inputs, outputs = Collector("model_inputs"), Collector("model_outputs")

    def run(data: str) -> Any:
        given = _parsed(json_value(data))
        try:
            result = predict(given)
        except Exception as error:
            # What the model's signature does not allow is the client's fault, as in MLflow's own server.
            if getattr(error, "error_code", "") in ("BAD_REQUEST", "INVALID_PARAMETER_VALUE"):
                raise BadInput(str(error)) from None
            raise
        if Collector.book is not None:
            context = inputs.collect(_as_frame(given))
            outputs.collect(_as_frame(result), context)
        return result

    return run


def version_of(folder: str) -> str:
    """The version of MLflow that saved a model."""
    found = _VERSION.search((Path(folder) / "MLmodel").read_text())
    return found[1] if found else "unknown"


def json_of_csv(text: str) -> str:
    """A CSV table in the form that `run` accepts."""
    pandas = importlib.import_module("pandas")
    try:
        frame = pandas.read_csv(io.StringIO(text))
    except (ValueError, pandas.errors.ParserError) as error:
        raise BadInput("the body is no CSV: {}".format(error)) from None
    return '{{"dataframe_split": {}}}'.format(frame.to_json(orient="split", index=False))


def answer_of(answer: Answer) -> Answer:
    """The answer of `/invocations`, in the form that MLflow's clients read."""
    if answer.status == 200 and answer.stream is None:
        answer.body = b'{"predictions": ' + answer.body + b"}"
    return answer


def json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput("the body is no JSON: {}".format(error)) from None
    except RecursionError:
        raise BadInput("the body is nested too deeply") from None


def _parsed(given: Any) -> Any:
    """Azure ML's `input_data` as a table; other forms as MLflow parses them, if its scoring server is installed."""
    if not isinstance(given, Mapping):
        raise BadInput("an object with dataframe_split, dataframe_records, inputs, instances or input_data is needed")
    if "input_data" in given:
        return _frame(given)
    try:
        server = importlib.import_module("mlflow.pyfunc.scoring_server")
        exception = importlib.import_module("mlflow.exceptions").MlflowException
    except ImportError:
        return _frame(given)
    kept = {name: given[name] for name in _OWN_FORMS if name in given}
    if len(kept) != 1:
        raise BadInput("one of {} is needed".format(", ".join(_OWN_FORMS)))
    try:
        return server.infer_and_parse_data(kept)
    except (exception, ValueError, TypeError) as error:
        raise BadInput(str(error)) from None


def _frame(given: Any) -> Any:
    pandas = importlib.import_module("pandas")
    split = given.get("dataframe_split") or given.get("input_data")
    try:
        if isinstance(split, Mapping):
            return pandas.DataFrame(split.get("data"), columns=split.get("columns"), index=split.get("index"))
        for key in ("dataframe_records", "instances", "inputs", "input_data"):
            if isinstance(given.get(key), list):
                return pandas.DataFrame(given[key])
        if isinstance(given.get("inputs"), Mapping):
            return pandas.DataFrame(given["inputs"])
    except (ValueError, TypeError) as error:
        raise BadInput("the data is no table: {}".format(error)) from None
    raise BadInput("none of {} and input_data is there".format(", ".join(_OWN_FORMS)))


def _as_frame(given: Any) -> Any:
    return given if hasattr(given, "columns") else importlib.import_module("pandas").DataFrame(given)
