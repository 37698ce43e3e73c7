"""Batches of images for one rank, from any step of an epoch on: packed shards, TFRecord, folders, or synthetic."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from muster.errors import MusterError
from muster.training.data import Shuffle, Source, Stream, indexed_source, open_source, tf_dataset

IMAGE, LABEL = "image/encoded", "image/class/label"
"""The names of a record's parts."""


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


def streams(args: argparse.Namespace, rank: int, size: int) -> tuple[Stream, Stream | None, int]:
    """This rank's parts of the data."""
    training, validation, classes = sources(args)
    own: dict[str, Any] = {"rank": rank, "world_size": size}
    try:
        first = Stream(training, args.batch_size, shuffle=Shuffle(args.seed), drop_last=True, **own)
        second = Stream(validation, args.batch_size, shuffle=None, **own) if validation is not None else None
    except ValueError as error:
        raise SystemExit(f"{error}: give more images, or a smaller --batch-size") from None
    return first, second, classes


def batches(stream: Stream, args: argparse.Namespace, training: bool) -> tf.data.Dataset:
    """The rest of the stream's epoch: images as bytes, and labels."""
    size, labels = args.image_size, tf.TensorSpec((None,), tf.int64)
    if args.data is None:
        images = tf.TensorSpec((None, size, size, 3), tf.uint8)
        return tf_dataset(stream, lambda sample: (sample["pixels"], sample["cls"]), (images, labels))
    encoded = tf.TensorSpec((None,), tf.string), labels, tf.TensorSpec((None,), tf.int64)
    take = random_view if training and args.augment else central_view

    def viewed(jpegs: tf.Tensor, labels: tf.Tensor, seeds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        kind = tf.TensorSpec((size, size, 3), tf.uint8)
        return tf.map_fn(lambda one: take(one[0], one[1], size), (jpegs, seeds), fn_output_signature=kind), labels

    # Several batches at a time are decoded, each by one thread.
    return tf_dataset(stream, as_bytes, encoded).map(viewed, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def as_bytes(sample: Any) -> tuple[bytes, int, int]:
    """A JPEG, its label, and its seed in this epoch."""
    if "record" in sample:
        parts = tf.train.Example.FromString(sample["record"]).features.feature
        return parts[IMAGE].bytes_list.value[0], parts[LABEL].int64_list.value[0], sample["__seed__"]
    for kind in ("jpg", "jpeg"):
        if kind in sample and "cls" in sample:
            return sample[kind], int(sample["cls"]), sample["__seed__"]
    raise ValueError(f"{sample['__key__']} has no .jpg beside a .cls, but {', '.join(sorted(sample))}")


def random_view(jpeg: tf.Tensor, seed: tf.Tensor, size: int) -> tf.Tensor:
    """A random part of the image, mirrored or not; the seed alone decides."""
    seeds = tf.stack([seed, tf.zeros_like(seed)])
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seeds,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
    )
    image = cropped(jpeg, begin[0], begin[1], extent[0], extent[1], size)
    return tf.image.stateless_random_flip_left_right(image, seeds + 1)


def central_view(jpeg: tf.Tensor, _: tf.Tensor, size: int) -> tf.Tensor:
    """The middle square."""
    height, width = tf.unstack(tf.io.extract_jpeg_shape(jpeg)[:2])
    side = tf.cast(tf.round(tf.cast(tf.minimum(height, width), tf.float32) * 224 / 256), tf.int32)
    return cropped(jpeg, (height - side) // 2, (width - side) // 2, side, side, size)


def cropped(jpeg: tf.Tensor, top: Any, left: Any, height: Any, width: Any, size: int) -> tf.Tensor:
    window = tf.stack([top, left, height, width])
    image = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3, dct_method="INTEGER_ACCURATE")
    resized = tf.image.resize(image, (size, size), antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)


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
