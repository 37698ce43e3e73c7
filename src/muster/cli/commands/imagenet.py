"""`muster data imagenet`: ImageNet from its original archives into packed shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.commands.files import Meter
from muster.cli.console import notice, say
from muster.cli.options import Json, print_json
from muster.cli.text import size


def imagenet(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the shards go: DIR/train, DIR/val.")],
    train: Annotated[
        Path | None, typer.Option(metavar="FILE", help="ILSVRC2012_img_train.tar.", show_default=False)
    ] = None,
    val: Annotated[
        Path | None, typer.Option(metavar="FILE", help="ILSVRC2012_img_val.tar.", show_default=False)
    ] = None,
    devkit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="ILSVRC2012_devkit_t12.tar.gz, for the labels of val (needs scipy).",
            show_default=False,
        ),
    ] = None,
    val_labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead: a class in each line, or a file's name and its class.", show_default=False
        ),
    ] = None,
    classes_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For val alone: classes.txt of the training shards.", show_default=False),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHICH=KIND:VALUE",
            help="What an archive must be: train=sha256:…, val=size:…; also md5, sha1; repeatable.",
            show_default=False,
        ),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many classes there must be.", show_default=False)
    ] = None,
    per_shard: Annotated[int, typer.Option(min=1, metavar="N", help="Images in a shard.")] = 1000,
    resize: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="PIXELS", help="Make larger images smaller: their shorter side.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the order in which images are mixed.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Shards made at once; a core each else.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Pack the original ImageNet archives into shards of mixed images, ready for sequential reading.

    Archives are verified first, against sizes and checksums that you give, and read in place: nothing is unpacked.
    A shard appears only when it is whole; the same command goes on after an interruption, and the same input gives
    the same bytes. The few images that are no plain RGB JPEGs are made ones.

    \b
    Examples:
      muster data imagenet --train train.tar --val val.tar --val-labels val.txt --out shards
      muster data imagenet --train train.tar --resize 256 --workers 8 --out small
    """
    from muster.imagenet.archives import parse_check
    from muster.imagenet.prepare import Request, prepare

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
    for split, about in made["splits"].items():
        print(f"{split}: {about['images']:,} images in {len(about['shards'])} shards, {size(about['bytes'])}")
        if about["converted"]:
            notice(f"{len(about['converted'])} images of {split} were no plain RGB JPEGs and were made ones")
    print(f"{made['classes']} classes; {out / 'manifest.json'} has the hash of every shard")


class Stages:
    """A line on the terminal for each stage of the work."""

    def __init__(self) -> None:
        self._meter: Meter | None = None

    def __call__(self, name: str, total: int) -> Callable[[int], None]:
        self.end()
        say(f"{name}: {size(total)}" if total else f"{name}: nothing to do")
        self._meter = Meter(total)
        return self._meter.add

    def end(self) -> None:
        if self._meter is not None:
            self._meter.end()
