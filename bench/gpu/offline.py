"""A bare loop over JPEGs in memory: decoded on the GPU in one thread, cut in another, classified in the third."""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--example", type=Path, required=True)
parser.add_argument("--weights", type=Path, required=True)
parser.add_argument("--pictures", type=Path, required=True)
parser.add_argument("--batches", default="64,256")
parser.add_argument("--images", type=int, default=60_000)
parser.add_argument("--together", type=int, default=1, help="processes that begin when all of them are ready")
parser.add_argument("--meet", type=Path, help="the folder in which they find each other")
SIZE = 224


def main() -> None:
    args = parser.parse_args()
    sys.path.insert(0, str(args.example))
    import inference
    import pixels

    device = torch.device("cuda")
    pictures = [path.read_bytes() for path in sorted(args.pictures.iterdir())]
    network = inference.load(args.weights, device)
    figures: dict[str, float] = {}
    for count in map(int, args.batches.split(",")):
        likeliest = inference.Likeliest(network, SIZE, device, (count,))
        whole_loop(pixels, likeliest, pictures, count, device, 20 * count)
        meet(args, count)
        seconds = whole_loop(pixels, likeliest, pictures, count, device, args.images)
        figures[f"loop {count}"] = args.images // count * count / seconds
        if args.together > 1:
            continue
        images = torch.zeros((count, 3, SIZE, SIZE), dtype=torch.uint8, device=device)
        images = images.contiguous(memory_format=torch.channels_last)
        figures[f"network {count}"] = count / timed(likeliest, images)
        some = [tensor(picture) for picture in itertools.islice(itertools.cycle(pictures), count)]
        figures[f"decode {count}"] = count / timed(done, pixels.decode_on_gpu, some, device)
        whole = pixels.decode_on_gpu(some, device)
        views = boxes(pixels, pictures, count)
        figures[f"views {count}"] = count / timed(done, pixels.take_views, whole, views, SIZE)
    if args.together == 1:
        figures["alone_ms"] = 1000 * one_image(
            pixels, inference.Likeliest(network, SIZE, device, (1,)), pictures[0], device
        )
    print(json.dumps(figures))


def one_image(pixels: Any, likeliest: Any, picture: bytes, device: Any) -> float:
    """Seconds from the bytes of an image to its classes."""
    views = boxes(pixels, [picture], 1)

    def alone() -> None:
        likeliest(pixels.take_views(pixels.decode_on_gpu([tensor(picture)], device), views, SIZE))

    return timed(alone, times=200)


def meet(args: argparse.Namespace, count: int) -> None:
    """Continue when all processes are here."""
    if args.together == 1:
        return
    (args.meet / f"{count}-{os.getpid()}").touch()
    while len(list(args.meet.glob(f"{count}-*"))) < args.together:
        time.sleep(0.005)


def whole_loop(pixels: Any, likeliest: Any, pictures: list[bytes], count: int, device: Any, images: int) -> float:
    """Seconds for `images` images with all three threads at work; their bytes and sizes are known beforehand."""
    decoding, cutting = (torch.cuda.Stream(device, priority=-1) for _ in range(2))
    tensors, views = [tensor(picture) for picture in pictures], boxes(pixels, pictures, len(pictures))
    starts = itertools.islice(itertools.cycle(range(0, len(pictures), count)), images // count)

    def decoded() -> Iterator[Any]:
        for start in starts:
            with torch.cuda.stream(decoding):
                whole = pixels.decode_on_gpu(tensors[start : start + count], device)
            decoding.synchronize()
            yield whole, views[start : start + count]

    def cut() -> Iterator[Any]:
        for whole, where in ahead(decoded()):
            with torch.cuda.stream(cutting):
                found = pixels.take_views(whole, where, SIZE)
            cutting.synchronize()
            yield found

    torch.cuda.synchronize()
    began = time.perf_counter()
    for found in ahead(cut()):
        likeliest(found)
    return time.perf_counter() - began


def ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, made in a thread."""
    queue: Queue[Any] = Queue(3)

    def fill() -> None:
        for item in items:
            queue.put(item)
        queue.put(None)

    Thread(target=fill, daemon=True).start()
    return iter(queue.get, None)


def boxes(pixels: Any, pictures: list[bytes], count: int) -> torch.Tensor:
    headers = [pixels.header(picture) for picture in itertools.islice(itertools.cycle(pictures), count)]
    return torch.tensor([(*pixels.central_view(width, height), False) for width, height, _ in headers])


def tensor(picture: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(picture), dtype=torch.uint8)


def done(call: Any, *given: Any) -> None:
    call(*given)
    torch.cuda.synchronize()


def timed(call: Any, *given: Any, times: int = 30) -> float:
    """The median time of a call, in seconds."""
    for _ in range(5):
        call(*given)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call(*given)
        taken.append(time.perf_counter() - began)
    return sorted(taken)[times // 2]


if __name__ == "__main__":
    main()
