"""Writes what `muster data imagenet` or `muster data pack` prepared as TFRecord files of some thousand images.

    python records.py /data/imagenet /data/imagenet-records

Each record has the image as it is (image/encoded) and its label (image/class/label); their order is mixed.
"""

import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import tensorflow as tf
from data import IMAGE, LABEL, as_bytes, class_count

from muster.training.data import Stream, numpy_batches, open_source

PER_FILE = 2048


def main(source: Path, target: Path) -> None:
    training = open_source(source / "train")
    for part, images in (("train", training), ("val", open_source(source / "val"))):
        stream = Stream(images, batch_size=min(64, len(images)))
        samples = chain.from_iterable(numpy_batches(stream))
        files = -(-stream.samples // PER_FILE)
        for number in range(files):
            write(islice(samples, PER_FILE), target / part / f"{part}-{number:05d}.tfrecord")
        print(f"{target / part}: {stream.samples} images in {files} files", flush=True)
    names = training.classes or (source / "classes.txt").read_text().split("\n")[: class_count(source, training)]
    (target / "classes.txt").write_text("".join(f"{name}\n" for name in names))


def write(samples: Iterator[Any], target: Path) -> None:
    """Write a file that gets its name once it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.tmp")
    with tf.io.TFRecordWriter(str(unfinished)) as writer:
        for sample in samples:
            jpeg, label, _ = as_bytes(sample)
            image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg]))
            number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
            features = tf.train.Features(feature={IMAGE: image, LABEL: number})
            writer.write(tf.train.Example(features=features).SerializeToString())
    unfinished.replace(target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
