"""Puts the trained network to work: `muster serve score.py` answers requests that hold a picture, `muster score` goes
through a folder of pictures."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from model import ResNet50
from pixels import central_view, decode_on_cpu, header, normalize
from torch import Tensor

try:
    from azureml.contrib.services.aml_request import rawhttp
    from azureml.contrib.services.aml_response import AMLResponse
except ModuleNotFoundError:  # over a folder, nobody sends requests

    def rawhttp(function: Any) -> Any:
        return function


SIZE = 224
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
network: ResNet50


def init() -> None:
    global network
    weights = torch.load(os.environ["MUSTER_MODEL_PATH"], map_location=DEVICE)
    # As wide, and with as many classes, as what was trained.
    network = ResNet50(len(weights["head.bias"]), len(weights["stem.0.weight"])).to(DEVICE).eval()
    network.load_state_dict(weights)


@rawhttp
def run(given: Any) -> Any:
    """One request, several at once (--max-batch), or the paths of a mini-batch."""
    if isinstance(given, list) and given and isinstance(given[0], str):
        found = classes([Path(path).read_bytes() for path in given])
        return [json.dumps({"file": Path(path).name, **one}) for path, one in zip(given, found, strict=True)]
    found = [
        answer(one)
        for one in classes([request.get_data() for request in (given if isinstance(given, list) else [given])])
    ]
    return found if isinstance(given, list) else found[0]


def answer(found: dict[str, Any]) -> Any:
    return AMLResponse(found, 400 if "error" in found else 200, json_str=True)


def classes(pictures: list[bytes]) -> list[dict[str, Any]]:
    """The likeliest classes of each picture; what is no picture is said to be none, and the others are looked at."""
    tensors = [pixels(picture) for picture in pictures]
    readable = [tensor for tensor in tensors if tensor is not None]
    rows = iter(probabilities(torch.stack(readable)) if readable else ())
    return [{"error": "this is no picture"} if tensor is None else likeliest(next(rows)) for tensor in tensors]


def pixels(picture: bytes) -> Tensor | None:
    try:
        width, height, _ = header(picture)
        return decode_on_cpu(picture, central_view(width, height), False, SIZE)
    except (OSError, ValueError):
        return None


@torch.inference_mode()
def probabilities(images: Tensor) -> Tensor:
    return network(normalize(images.to(DEVICE))).softmax(dim=1).cpu()


def likeliest(row: Tensor) -> dict[str, Any]:
    values, numbers = row.topk(min(5, len(row)))
    return {
        "class": int(numbers[0]),
        "classes": numbers.tolist(),
        "probabilities": [round(p, 4) for p in values.tolist()],
    }
