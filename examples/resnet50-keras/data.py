"""Batches of images for one rank, from any step of an epoch on, as NumPy arrays: they suit every backend."""

import argparse
import io
import math
import random
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from muster.errors import MusterError
from muster.training.data import Shuffle, Source, Stream, indexed_source, numpy_batches, open_source


def sources(args: argparse.Namespace) -> tuple[Source, Source | None, int]:
    """The data to train on, the data to validate on, if any, and the number of classes."""
    if args.data is None:
        classes = args.classes or 10
        held_back = synthetic(args.synthetic_val, classes, args.image_size, 2) if args.synthetic_val else None
        return synthetic(args.synthetic, classes, args.image_size, 1), held_back, classes
    found = []
    for part in ("train", "val"):
        if not (args.data / part).is_dir():
            raise SystemExit(f"--data: there is no folder {args.data / part}; it needs `train` and `val` inside")
        try:
            found.append(open_source(args.data / part))
        except (MusterError, ValueError) as error:
            raise SystemExit(f"--data: {error}") from None
    return found[0], found[1], args.classes or class_count(args.data, found[0])


def class_count(folder: Path, training: Source) -> int:
    """The number of classes, from the shards' index or from the list written when the data was prepared."""
    listed = folder / "classes.txt"
    if training.classes:
        return len(training.classes)
    if listed.exists():
        return len(listed.read_text().splitlines())
    raise SystemExit(f"--data: {folder} does not say how many classes it has; give --classes N, or write {listed}")


def stream_of(source: Source, args: argparse.Namespace, rank: int, size: int, training: bool) -> Stream:
    """This rank's part of the data."""
    shuffle = Shuffle(args.seed) if training else None
    try:
        return Stream(source, args.batch_size, rank=rank, world_size=size, shuffle=shuffle, drop_last=training)
    except ValueError as error:
        raise SystemExit(f"{error}: give more images, or a smaller --batch-size") from None


def batches(stream: Stream, args: argparse.Namespace, classes: int, count: int, training: bool) -> Iterator[Any]:
    """The next few batches of the stream's epoch: images as bytes, and one-hot labels."""
    decode = partial(decoded, size=args.image_size, augment=training and args.augment)
    for images, labels in islice(numpy_batches(stream, decode), count):
        yield images, np.eye(classes, dtype=np.float32)[labels]


def decoded(sample: Any, size: int, augment: bool) -> tuple[Any, int]:
    if "pixels" in sample:
        return sample["pixels"], sample["cls"]
    from PIL import Image

    jpeg = sample.get("jpg", sample.get("jpeg"))
    if jpeg is None or "cls" not in sample:
        raise ValueError(f"{sample['__key__']} has no .jpg beside a .cls, but {', '.join(sorted(sample))}")
    with Image.open(io.BytesIO(jpeg)) as image:
        box, mirror = random_view(*image.size, sample["__seed__"]) if augment else (central_view(*image.size), False)
        view = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box)
    pixels = np.asarray(view)
    return pixels[:, ::-1] if mirror else pixels, int(sample["cls"])


def random_view(width: int, height: int, seed: int) -> tuple[tuple[int, int, int, int], bool]:
    """A random part of the image, and whether to mirror it; the seed alone decides."""
    source = random.Random(seed)
    for _ in range(10):
        area = width * height * source.uniform(0.08, 1.0)
        ratio = math.exp(source.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = source.randint(0, width - wide), source.randint(0, height - high)
            return (left, top, left + wide, top + high), source.random() < 0.5
    return central_view(width, height, 1.0), source.random() < 0.5


def central_view(width: int, height: int, part: float = 224 / 256) -> tuple[int, int, int, int]:
    """The middle square: its left, top, right and bottom."""
    side = round(min(width, height) * part)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def synthetic(length: int, classes: int, size: int, seed: int) -> Source:
    """Images that can be learned: each class has a pattern, and each of a few hundred images its own noise."""
    coarse = np.random.default_rng(0).normal(size=(classes, 8, 8, 3))
    patterns = coarse.repeat(-(-size // 8), 1).repeat(-(-size // 8), 2)[:, :size, :size]
    source = np.random.default_rng(seed)
    labels = np.arange(min(length, 512)) % classes
    noisy = (patterns[label] + source.normal(size=(size, size, 3)) for label in labels)
    images = np.stack([np.clip(128 + 40 * image, 0, 255).astype(np.uint8) for image in noisy])

    def read(index: int) -> dict[str, Any]:
        return {"pixels": images[index % len(images)], "cls": labels[index % len(images)]}

    return indexed_source(length, read)
