"""The whole preparation: check, look, plan, pack, and a manifest at the end."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from muster.errors import JobError, MissingExtra
from muster.host.extras import install_command
from muster.host.files import write_file, write_json
from muster.imagenet import archives, classes, labels, pack
from muster.imagenet.archives import Check, Image
from muster.wire.codec import from_json, to_json

Progress = Callable[[int], None]
Stage = Callable[[str, int], Progress]
"""Begins a stage by its name and its total of bytes; returns the function that counts them."""
Splits = dict[str, tuple[Path, list[Image]]]
"""The archive and the images of train and val."""


@dataclass(frozen=True)
class Request:
    """What to make of which archives."""

    out: Path
    train: Path | None
    val: Path | None
    devkit: Path | None
    val_labels: Path | None
    classes_file: Path | None
    checks: tuple[Check, ...]
    num_classes: int | None
    images_per_shard: int
    resize: int | None
    seed: int
    workers: int


@dataclass(frozen=True)
class Split:
    """The shards of train or of val."""

    images: int
    bytes: int
    converted: tuple[str, ...]
    shards: tuple[pack.Packed, ...]


@dataclass(frozen=True)
class Manifest:
    """The contents of a folder of shards; `manifest.json` in it."""

    format: str
    classes: int
    splits: dict[str, Split]


def prepare(request: Request, stage: Stage) -> Manifest:
    """Make the shards; returns the manifest, which is also written to the folder."""
    _require(request)
    # Before the archives are read, which takes long.
    names = _listed_classes(request) if request.train is None else None
    with ThreadPoolExecutor(request.workers) as workers:
        _verify(request, stage)
        names, splits = _find_images(request, names, workers, stage)
        with pack.sole_writer(request.out):
            return _pack(request, names, splits, workers, stage)


def _pack(
    request: Request, names: Sequence[str], splits: Splits, workers: ThreadPoolExecutor, stage: Stage
) -> Manifest:
    packings = {}
    for split, (archive, images) in splits.items():
        shards = pack.plan_shards(images, request.images_per_shard, request.seed, split)
        packings[split] = pack.Packing(request.out / split, _about(request, archive, images, names), archive, shards)
    _check_room(request, packings.values())
    with pack.full_disk_explained(request.out, packings.values()):
        # Before the first shard: labels mean nothing without the classes.
        write_file(classes.path_in(request.out), "".join(f"{name}\n" for name in names))
        for split, packing in packings.items():
            bytes_left = sum(image.size for shard in packing.left for image in shard.images)
            packing.write(workers, stage(f"packing {split}", bytes_left))
        return _finish(request, names, packings)


def _require(request: Request) -> None:
    if request.train is None and request.val is None:
        raise JobError("neither --train nor --val is given.", "Give the path of at least one original archive.")
    if request.devkit is not None and request.val_labels is not None:
        raise JobError(
            "both --devkit and --val-labels are given; the labels come from only one of them.", "Leave one of them out."
        )
    if request.val is not None and request.devkit is None and request.val_labels is None:
        raise JobError(
            "the validation archive has no labels inside; one of --devkit and --val-labels is needed.",
            "The development kit is the archive that comes with ImageNet; a list has a class in each line.",
        )
    if request.train is not None and request.classes_file is not None:
        raise JobError(
            f"--classes-file {request.classes_file} cannot be given together with --train.",
            "The classes are those of the training archive, in the order of their names: leave --classes-file out.",
        )
    for check in request.checks:
        if getattr(request, check.which) is None:
            raise JobError(
                f"--check speaks of the {check.which} archive, which is not given.",
                f"Give --{check.which} too, or leave that --check out.",
            )
    if find_spec("PIL") is None:
        raise MissingExtra("reading images needs Pillow", install_command("images"))


def _listed_classes(request: Request) -> tuple[str, ...]:
    """Without the training archive: the given list, or that of the shards in the folder."""
    own = classes.path_in(request.out)
    if request.classes_file is None and not own.exists():
        raise JobError(
            "the order of the classes is not known without the training archive.",
            "Give --train too, or --classes-file: the classes.txt of shards that were made with it.",
        )
    source = request.classes_file or own
    names = classes.read(source)
    hint = f"Leave --classes-file out: {own} is then taken. Or give another --out."
    classes.refuse_other_classes(request.out, names, source, hint)
    return names


def _verify(request: Request, stage: Stage) -> None:
    given = {"train": request.train, "val": request.val, "devkit": request.devkit}
    asked = [(archive, [check for check in request.checks if check.which == which]) for which, archive in given.items()]
    for archive, checks in asked:
        if archive is not None and checks:
            archives.verify_size(archive, checks)
    for archive, checks in asked:
        checksums = [check for check in checks if check.kind != "size"]
        if archive is not None and checksums:
            advance = stage(f"verifying {archive.name}", archives.size_of(archive))
            archives.verify_checksums(archive, checksums, advance)


def _find_images(
    request: Request, names: tuple[str, ...] | None, workers: ThreadPoolExecutor, stage: Stage
) -> tuple[tuple[str, ...], Splits]:
    splits: Splits = {}
    if request.train is not None:
        advance = stage(f"looking into {request.train.name}", archives.size_of(request.train))
        names, images = archives.train_images(request.train, workers, advance)
        splits["train"] = (request.train, images)
        classes.refuse_other_classes(request.out, names, request.train, f"Give another --out, or remove {request.out}.")
    assert names is not None
    if request.num_classes is not None and len(names) != request.num_classes:
        raise JobError(
            f"there are {len(names)} classes, not {request.num_classes}.",
            "Is the archive complete? Otherwise correct --classes.",
        )
    if request.val is not None:
        known = (
            labels.from_devkit(request.devkit, names)
            if request.devkit is not None
            else labels.from_list(request.val_labels or Path(), names)
        )
        advance = stage(f"looking into {request.val.name}", archives.size_of(request.val))
        splits["val"] = (request.val, archives.val_images(request.val, known, advance))
    return names, splits


def _about(request: Request, archive: Path, images: Sequence[Image], names: Sequence[str]) -> pack.Work:
    return pack.Work(
        archive=archive.name,
        archive_size=archive.stat().st_size,
        images=len(images),
        classes=len(names),
        labels_sha256=hashlib.sha256(repr([(image.name, image.label) for image in images]).encode()).hexdigest(),
        images_per_shard=request.images_per_shard,
        resize=request.resize,
        seed=request.seed,
    )


def _check_room(request: Request, packings: Collection[pack.Packing]) -> None:
    needed = sum(pack.room_needed(packing.left) for packing in packings)
    begun, free = any(packing.done for packing in packings), shutil.disk_usage(request.out).free
    # Smaller images need less; how much less is only known afterwards.
    if request.resize is None and needed > free:
        # Resized images are not mixed into existing shards.
        smaller = "make the images smaller with --resize 256" + (" and another --out" if begun else "")
        raise JobError(
            f"{request.out} has {free / 1e9:,.3g} GB free; the shards need {needed / 1e9:,.3g} GB.",
            f"Free some, give another --out, or {smaller}.",
        )


def _finish(request: Request, names: Sequence[str], packings: Mapping[str, pack.Packing]) -> Manifest:
    path = request.out / "manifest.json"
    # Train and val may be made by separate commands.
    known = from_json(Manifest, json.loads(path.read_text())).splits if path.exists() else {}
    splits = {split: about for split, about in known.items() if (request.out / split).is_dir()}
    for split, packing in packings.items():
        packed = [packing.done[shard.name] for shard in packing.shards]
        splits[split] = Split(
            images=sum(item.images for item in packed),
            bytes=sum(item.size for item in packed),
            converted=tuple(sorted(name for item in packed for name in item.converted)),
            shards=tuple(packed),
        )
    manifest = Manifest("jpg+cls tar shards", len(names), splits)
    write_json(path, to_json(manifest), indent=2)
    return manifest
