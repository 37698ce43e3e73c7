"""Puts the trained network to work: `muster serve score.py` answers requests that hold pictures, `muster score` goes
through a folder of pictures."""

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pixels
import torch
from inference import Likeliest, load
from torch import Tensor

try:
    from azureml.contrib.services.aml_request import rawhttp
    from azureml.contrib.services.aml_response import AMLResponse
except ModuleNotFoundError:  # not needed to score a folder

    def rawhttp(function: Any) -> Any:
        return function


SIZE = 224
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Decoded = tuple[list[bool], Tensor | None]
"""For each picture whether it could be read, and those that could."""

likeliest: Likeliest
on_gpu = False
stream: Any = None
ahead: ThreadPoolExecutor
reading: ThreadPoolExecutor


def init() -> None:
    global likeliest, on_gpu, stream, ahead, reading
    likeliest = Likeliest(load(Path(os.environ["MUSTER_MODEL_PATH"]), DEVICE), SIZE, DEVICE)
    on_gpu = pixels.gpu_can_decode(DEVICE)
    stream = torch.cuda.Stream(DEVICE) if on_gpu else None
    ahead, reading = ThreadPoolExecutor(1, "decode"), ThreadPoolExecutor(8, "read")


@rawhttp
def run(given: Any) -> Any:
    """One request, several at once (--max-batch), or the paths of a mini-batch."""
    if isinstance(given, list) and given and isinstance(given[0], str):
        found = classes(reading.map(lambda path: Path(path).read_bytes(), given))
        return [json.dumps({"file": Path(path).name, **one}) for path, one in zip(given, found, strict=True)]
    requests = given if isinstance(given, list) else [given]
    pictures = [pictures_in(request) for request in requests]
    found = iter(classes(picture for several in pictures for picture in several))
    answers = [answer([next(found) for _ in several]) for several in pictures]
    return answers if isinstance(given, list) else answers[0]


def pictures_in(request: Any) -> list[bytes]:
    """The body is a picture, or a form with some (`curl -F a=@one.jpg -F b=@two.jpg`)."""
    body: bytes = request.get_data()
    kind, _, boundary = request.content_type.partition("boundary=")
    if not kind.startswith("multipart/form-data"):
        return [body]
    parts = body.split(b"--" + boundary.strip('"').encode())[1:-1]
    return [part.partition(b"\r\n\r\n")[2][:-2] for part in parts]


def answer(found: list[dict[str, Any]]) -> Any:
    """The result of a single picture, or a list for several."""
    failed = all("error" in one for one in found)
    return AMLResponse(found[0] if len(found) == 1 else found, 400 if failed else 200, json_str=True)


def classes(pictures: Iterable[bytes]) -> list[dict[str, Any]]:
    """The likeliest classes of each picture; one that cannot be read is reported, and the others are classified."""
    found: list[dict[str, Any]] = []
    for is_readable, images in decoded(pictures):
        values, numbers = likeliest(images) if images is not None else (torch.empty(0), torch.empty(0))
        rows = zip(values.tolist(), numbers.tolist(), strict=True)
        found += [described(*next(rows)) if ok else {"error": "this is no picture"} for ok in is_readable]
    return found


def decoded(pictures: Iterable[bytes]) -> Iterator[Decoded]:
    """Pictures in batches that the network takes; while it works, the next ones are read and decoded."""
    source = iter(pictures)
    coming = ahead.submit(next_decoded, source)
    while (some := coming.result()) is not None:
        coming = ahead.submit(next_decoded, source)
        yield some


def next_decoded(pictures: Iterator[bytes]) -> Decoded | None:
    some = list(islice(pictures, likeliest.most))
    return decode(some) if some else None


def decode(pictures: list[bytes]) -> Decoded:
    """Decode all together; if that fails, each alone, so that only unreadable ones are missing."""
    try:
        return [True] * len(pictures), images_of(pictures)
    except (OSError, ValueError, RuntimeError):
        if len(pictures) == 1:
            return [False], None
    alone = [decode([picture]) for picture in pictures]
    images = [image for _, image in alone if image is not None]
    return [is_readable for (is_readable,), _ in alone], torch.cat(images) if images else None


def images_of(pictures: list[bytes]) -> Tensor:
    """The middle of each picture, SIZE x SIZE bytes, on the device."""
    headers = [pixels.header(picture) for picture in pictures]
    boxes = [pixels.central_view(width, height) for width, height, _ in headers]
    if not on_gpu:
        views = [pixels.decode_on_cpu(*pair, False, SIZE) for pair in zip(pictures, boxes, strict=True)]
        return torch.stack(views).to(DEVICE)
    jpegs = [
        picture if is_plain else pixels.made_plain(picture)
        for picture, (_, _, is_plain) in zip(pictures, headers, strict=True)
    ]
    with torch.cuda.stream(stream):
        tensors = [torch.frombuffer(bytearray(jpeg), dtype=torch.uint8) for jpeg in jpegs]
        whole = pixels.decode_on_gpu(tensors, DEVICE)
        images = pixels.take_views(whole, torch.tensor([(*box, False) for box in boxes]), SIZE)
    stream.synchronize()
    return images


def described(values: list[float], numbers: list[int]) -> dict[str, Any]:
    return {"class": numbers[0], "classes": numbers, "probabilities": [round(value, 4) for value in values]}
