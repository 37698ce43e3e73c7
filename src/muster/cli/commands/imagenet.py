"""`muster data imagenet`: ImageNet from its original archives into packed shards."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from muster.cli.commands.files import Meter
from muster.cli.console import is_terminal, notice, say
from muster.cli.options import Json, option, print_json
from muster.cli.text import counted, duration, size
from muster.defaults import IMAGES_PER_SHARD
from muster.imagenet.archives import parse_check
from muster.imagenet.prepare import Request, prepare

_LINE_EVERY_S = 30.0


def imagenet(
    out: Annotated[Path, option("DIR", "Where the shards go: DIR/train, DIR/val.")],
    train: Annotated[Path | None, option("FILE", "ILSVRC2012_img_train.tar.")] = None,
    val: Annotated[Path | None, option("FILE", "ILSVRC2012_img_val.tar.")] = None,
    devkit: Annotated[
        Path | None, option("FILE", "ILSVRC2012_devkit_t12.tar.gz, for the labels of val (needs scipy).")
    ] = None,
    val_labels: Annotated[
        Path | None, option("FILE", "Instead of --devkit: one class per line, or a file name and its class.")
    ] = None,
    classes_file: Annotated[
        Path | None, option("FILE", "For only val: the order of classes, one per line (default: DIR/classes.txt).")
    ] = None,
    check: Annotated[
        list[str] | None,
        option("WHICH=KIND:VALUE", "What an archive must be: train=sha256:…, val=size:…; also md5, sha1; repeatable."),
    ] = None,
    classes: Annotated[int | None, option("N", "The expected number of classes.", min=1)] = None,
    per_shard: Annotated[int, option("N", "Images in a shard.", min=1)] = IMAGES_PER_SHARD,
    resize: Annotated[int | None, option("PIXELS", "Shrink larger images to this shorter side.", min=1)] = None,
    seed: Annotated[int, option("N", "Seed of the shuffle.")] = 0,
    workers: Annotated[int | None, option("N", "Shards made at once (default: one per core).", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Pack the original ImageNet archives into shards of mixed images, ready for sequential reading.

    Archives are verified first, against sizes and checksums that you give, and read in place: nothing is unpacked.
    A shard appears only when it is complete; after an interruption the same command continues, and the same input gives
    the same bytes. The few images that are not plain RGB JPEGs are converted.

    \b
    Examples:
      muster data imagenet --train train.tar --val val.tar --val-labels val.txt --out shards
      muster data imagenet --train train.tar --resize 256 --workers 8 --out small
    """
    stages = Stages()
    try:
        made = prepare(
            Request(
                out=out,
                train=train,
                val=val,
                devkit=devkit,
                val_labels=val_labels,
                classes_file=classes_file,
                checks=tuple(map(parse_check, check or [])),
                num_classes=classes,
                images_per_shard=per_shard,
                resize=resize,
                seed=seed,
                workers=workers or os.cpu_count() or 1,
            ),
            stages,
        )
    finally:
        stages.end()
    if as_json:
        print_json(made)
        return
    for split, about in made.splits.items():
        images, shards = counted(about.images, "image"), counted(len(about.shards), "shard")
        print(f"{split}: {images} in {shards}, {size(about.bytes)}")
        if about.converted:
            notice(f"{counted(len(about.converted), 'image')} of {split} made plain RGB JPEG")
    print(f"{counted(made.classes, 'class', 'es')}; {out / 'manifest.json'} has the hash of every shard")


class Stages:
    """Progress of each stage: a line that is redrawn, or a line from time to time where that is impossible."""

    def __init__(self) -> None:
        self._meter: Meter | Lines | None = None

    def __call__(self, name: str, total: int) -> Callable[[int], None]:
        self.end()
        say(f"{name}: {size(total)}" if total else f"{name}: nothing to do")
        self._meter = Meter(total) if is_terminal(sys.stderr) else Lines(name, total)
        return self._meter.add

    def end(self) -> None:
        if self._meter is not None:
            self._meter.end()


class Lines:
    """Progress for a log: a plain line twice a minute."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._began = self._shown = time.monotonic()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now - self._shown < _LINE_EVERY_S:
                return
            self._shown = now
            rate = self._done / (now - self._began)
            left = duration((self._total - self._done) / rate)
            say(f"{self._name}: {size(self._done)} of {size(self._total)}, {size(rate)}/s, about {left} left")

    def end(self) -> None:
        """Keep the current line on the screen."""
