"""The Open Inference Protocol v2 (REST), and its predecessor `v1/models/NAME:predict`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from muster.scoring.serve import binary
from muster.scoring.serve.body import BadInput
from muster.scoring.serve.http import Answer
from muster.scoring.serve.settings import Settings

_JSON = {"content-type": "application/json"}
_TYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES",
)  # fmt: skip
_LENGTH = re.compile("[0-9]{1,12}")
_MOST_EMPTY = 10_000
_MOST_SHOWN = 100


@dataclass(frozen=True)
class Inference:
    """A request for the model: its protocol, and the input of `run()`."""

    kind: str
    text: str
    id: Optional[str] = None


def route_of(method: str, path: str, name: str, version: str) -> Union[str, Answer]:
    """`infer` or `predict` for a request to the model, otherwise the answer itself."""
    if path == "/v1/models/{}:predict".format(name):
        return "predict" if method == "POST" else refused(405, "POST is needed")
    known = {"name": name, "versions": [version], "platform": "muster", "inputs": [], "outputs": []}
    told = {
        "/v2": {"name": "muster", "version": version, "extensions": ["binary_tensor_data"]},
        "/v2/health/live": {"live": True},
        "/v2/health/ready": {"ready": True},
        "/v2/models": {"models": [name]},
        "/v1/models": {"models": [name]},
        "/v1/models/{}".format(name): {"name": name, "ready": True},
    }
    if path in told:
        return Answer(200, json.dumps(told[path]).encode(), _JSON) if method == "GET" else refused(405, "GET is needed")
    for base in ("/v2/models/{}".format(name), "/v2/models/{}/versions/{}".format(name, version)):
        if path == base + "/infer":
            return "infer" if method == "POST" else refused(405, "POST is needed")
        if path == base:
            return Answer(200, json.dumps(known).encode(), _JSON)
        if path == base + "/ready":
            return Answer(200, json.dumps({"name": name, "ready": True}).encode(), _JSON)
    return refused(404, "there is no {} here; the model is called {}, version {}".format(path, name, version))


def parse(body: bytes, kind: str, head_length: str = "") -> Inference:
    """Check a request; raises BadInput with the reason if it is wrong.

    `head_length`: the length of the JSON, if tensors follow it as bytes.
    """
    head, rest = body, b""
    if head_length:
        if not _LENGTH.fullmatch(head_length) or int(head_length) > len(body):
            said = "inference-header-content-length is {}, of {} bytes"
            raise BadInput(said.format(head_length[:_MOST_SHOWN], len(body)))
        head, rest = body[: int(head_length)], body[int(head_length) :]
    try:
        return _parse(head.decode("utf-8"), kind, rest)
    except UnicodeDecodeError:
        raise BadInput("the body is no text in UTF-8") from None
    except RecursionError:
        raise BadInput("the body is nested too deeply") from None


def _parse(body: str, kind: str, rest: bytes) -> Inference:
    try:
        given = json.loads(body)
    except ValueError as error:
        raise BadInput("the body is no JSON: {}".format(error)) from None
    if not isinstance(given, dict):
        raise BadInput("the body is no object")
    if kind == "predict":
        if not isinstance(given.get("instances", given.get("inputs")), (list, dict)):
            raise BadInput('"instances" is missing, or no list')
        return Inference(kind, body)
    inputs = given.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise BadInput('"inputs" is missing, or no list')
    tensors = {}
    for item in inputs:
        size = binary.size_of(item)
        if size is not None:
            if size > len(rest):
                raise BadInput("binary_data_size is {}, and {} bytes are left".format(size, len(rest)))
            item, rest = {**item, "data": binary.decoded(item, rest[:size])}, rest[size:]
        name, data = _tensor(item)
        if name in tensors:
            raise BadInput("input {} is there twice".format(name))
        tensors[name] = data
    given_id = given.get("id")
    text = json.dumps({"inputs": next(iter(tensors.values())) if len(tensors) == 1 else tensors})
    return Inference(kind, text, str(given_id) if given_id is not None else None)


def answer_of(answer: Answer, request: Inference, settings: Settings) -> Answer:
    """The model's answer, in the form of the protocol."""
    if answer.status != 200:
        return refused(answer.status, _message(answer.body))
    try:
        result = json.loads(answer.body)
    except (ValueError, RecursionError):
        return refused(500, "the model answered with something other than JSON")
    if request.kind == "predict":
        whole = result if isinstance(result, dict) and "predictions" in result else {"predictions": result}
        return Answer(200, json.dumps(whole).encode(), answer.headers)
    if isinstance(result, dict) and "outputs" in result:
        outputs = result["outputs"]
    else:
        outputs = [
            _output(name, value)
            for name, value in (result.items() if isinstance(result, dict) else [("output_0", result)])
        ]
    whole = {"model_name": settings.name, "model_version": settings.version, "outputs": outputs}
    if request.id is not None:
        whole["id"] = request.id
    return Answer(200, json.dumps(whole).encode(), answer.headers)


def _message(body: bytes) -> str:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    return str(given["message"]) if isinstance(given, dict) and "message" in given else body.decode("utf-8", "replace")


def refused(status: int, message: str, headers: Optional[Mapping[str, str]] = None) -> Answer:
    return Answer(status, json.dumps({"error": message}).encode(), {**_JSON, **(headers or {})})


def _tensor(item: Any) -> Tuple[str, Any]:
    """The name of an input, and its data nested as its shape requires."""
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise BadInput("an input has no name")
    name, shape, kind, data = item["name"], item.get("shape"), item.get("datatype"), item.get("data")
    if kind not in _TYPES:
        raise BadInput("input {}: datatype {!r} is none of {}".format(name, kind, ", ".join(_TYPES)))
    if not isinstance(shape, list) or not all(type(part) is int and part >= 0 for part in shape):
        raise BadInput("input {}: shape is no list of whole numbers".format(name))
    if not isinstance(data, list):
        raise BadInput("input {}: data is no list".format(name))
    flat = _flat(data)
    _check_count(name, shape, len(flat))
    return name, _nested(flat, shape)


def _check_count(name: str, shape: Sequence[int], count: int) -> None:
    """The shape must fit the number of values; without any, it must not ask for a billion empty lists."""
    shown = str(list(shape[:8]))[:_MOST_SHOWN]
    holds, most = 1, max(count, _MOST_EMPTY)
    for part in shape:
        holds *= part
        if holds > most:
            raise BadInput(
                "input {}: shape {} holds more than {} values, and data has {}".format(name, shown, most, count)
            )
    if holds != count:
        raise BadInput("input {}: shape {} holds {} values, and data has {}".format(name, shown, holds, count))


def _flat(data: Sequence[Any]) -> List[Any]:
    flat: List[Any] = []
    for item in data:
        flat.extend(_flat(item)) if isinstance(item, list) else flat.append(item)
    return flat


def _nested(flat: Sequence[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return list(flat)
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]


def _output(name: str, value: Any) -> Any:
    shape: List[int] = []
    inner = value
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    flat = _flat(value) if isinstance(value, list) else [value]
    if all(isinstance(item, bool) for item in flat):
        kind = "BOOL"
    elif all(isinstance(item, int) for item in flat):
        kind = "INT64"
    elif all(isinstance(item, (int, float)) for item in flat):
        kind = "FP64"
    else:
        kind, flat = "BYTES", [item if isinstance(item, str) else json.dumps(item) for item in flat]
    return {"name": name, "shape": shape or [1], "datatype": kind, "data": flat}
