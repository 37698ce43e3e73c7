"""The whole preparation: check, look, plan, pack, and a manifest at the end."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from muster.errors import JobError, MissingExtra
from muster.imagenet import archives, labels, pack
from muster.imagenet.archives import Check, Image

Progress = Callable[[int], None]
Stage = Callable[[str, int], Progress]
"""Begins a stage by its name and the bytes that it goes through; returns what counts them."""
Splits = dict[str, tuple[Path, list[Image]]]
"""The archive and the images of train and val."""


@dataclass(frozen=True)
class Request:
    """What is to be made of what."""

    out: Path
    train: Path | None = None
    val: Path | None = None
    devkit: Path | None = None
    val_labels: Path | None = None
    classes_file: Path | None = None
    checks: tuple[Check, ...] = ()
    num_classes: int | None = None
    images_per_shard: int = 1000
    resize: int | None = None
    seed: int = 0
    workers: int = 4


def prepare(request: Request, stage: Stage) -> dict[str, Any]:
    """Make the shards; returns the manifest, which is also kept in the folder."""
    _require(request)
    with ThreadPoolExecutor(request.workers) as workers:
        _verify(request, stage)
        classes, splits = _look(request, workers)
        with pack.alone_in(request.out):
            return _pack(request, classes, splits, workers, stage)


def _pack(
    request: Request, classes: Sequence[str], splits: Splits, workers: ThreadPoolExecutor, stage: Stage
) -> dict[str, Any]:
    planned = {
        split: pack.plan_shards(images, request.images_per_shard, request.seed, split)
        for split, (_, images) in splits.items()
    }
    packings = {
        split: pack.Packing(request.out / split, _about(request, archive, images, classes))
        for split, (archive, images) in splits.items()
    }
    _check_room(request, [shard for split in splits for shard in packings[split].left(planned[split])])
    for split, (archive, _) in splits.items():
        left = packings[split].left(planned[split])
        told = stage(f"packing {split}", sum(image.size for shard in left for image in shard.images))
        packings[split].write(archive, planned[split], request.resize, workers, told)
    return _finish(request, classes, {split: (planned[split], packings[split]) for split in splits})


def _require(request: Request) -> None:
    if request.train is None and request.val is None:
        raise JobError("neither --train nor --val is given.", "Give the path of at least one original archive.")
    if request.val is not None and (request.devkit is None) == (request.val_labels is None):
        raise JobError(
            "the validation archive has no labels inside; one of --devkit and --val-labels is needed.",
            "The development kit is the archive that comes with ImageNet; a list has a class in each line.",
        )
    if request.train is None and request.classes_file is None:
        raise JobError(
            "the order of the classes is not known without the training archive.",
            "Give --train too, or --classes-file: the classes.txt of shards that were made with it.",
        )
    if find_spec("PIL") is None:
        raise MissingExtra("reading images needs Pillow", "pip install 'muster[images]'")


def _verify(request: Request, stage: Stage) -> None:
    given = {"train": request.train, "val": request.val, "devkit": request.devkit}
    for which, archive in given.items():
        checks = [check for check in request.checks if check.which == which]
        if checks and archive is None:
            raise JobError(f"--check speaks of the {which} archive, which is not given.")
        if not checks or archive is None:
            continue
        if not archive.exists():
            raise JobError(f"there is no archive {archive}.")
        hashed = any(check.kind != "size" for check in checks)
        archives.verify(archive, checks, stage(f"verifying {archive.name}", archive.stat().st_size if hashed else 0))


def _look(request: Request, workers: ThreadPoolExecutor) -> tuple[tuple[str, ...], Splits]:
    splits: Splits = {}
    if request.train is not None:
        classes, images = archives.train_images(request.train, workers)
        splits["train"] = (request.train, images)
    else:
        assert request.classes_file is not None
        classes = tuple(request.classes_file.read_text().split())
    if request.num_classes is not None and len(classes) != request.num_classes:
        raise JobError(
            f"there are {len(classes)} classes, not {request.num_classes}.", "Is the archive whole? Or mend --classes."
        )
    if request.val is not None:
        known: Any = (
            labels.from_devkit(request.devkit, classes)
            if request.devkit is not None
            else labels.from_list(request.val_labels or Path(), classes)
        )
        splits["val"] = (request.val, archives.val_images(request.val, known))
    return classes, splits


def _about(request: Request, archive: Path, images: Sequence[Image], classes: Sequence[str]) -> dict[str, Any]:
    """What must be the same for shards of an earlier start to count."""
    return {
        "archive": archive.name,
        "archive_size": archive.stat().st_size,
        "images": len(images),
        "classes": len(classes),
        # Other labels make other shards.
        "labels_sha256": hashlib.sha256(repr([(image.name, image.label) for image in images]).encode()).hexdigest(),
        "images_per_shard": request.images_per_shard,
        "resize": request.resize,
        "seed": request.seed,
    }


def _check_room(request: Request, left: Sequence[pack.Shard]) -> None:
    needed, free = pack.room_needed(left), shutil.disk_usage(request.out).free
    # Smaller images need less; how much less is known only afterwards.
    if request.resize is None and needed > free:
        raise JobError(
            f"{request.out} has {free / 1e9:,.3g} GB free; the shards need {needed / 1e9:,.3g} GB.",
            "Free some, give another --out, or make the images smaller with --resize 256.",
        )


def _finish(
    request: Request, classes: Sequence[str], made: dict[str, tuple[list[pack.Shard], pack.Packing]]
) -> dict[str, Any]:
    (request.out / "classes.txt").write_text("".join(f"{name}\n" for name in classes))
    path = request.out / "manifest.json"
    # Train and val may be made by a command each.
    known = json.loads(path.read_text())["splits"] if path.exists() else {}
    others = {split: about for split, about in known.items() if (request.out / split).is_dir()}
    manifest: dict[str, Any] = {"format": "jpg+cls tar shards", "classes": len(classes), "splits": others}
    for split, (shards, packing) in made.items():
        packed = [packing.done[shard.name] for shard in shards]
        manifest["splits"][split] = {
            "images": sum(item.images for item in packed),
            "bytes": sum(item.size for item in packed),
            "converted": sorted(name for item in packed for name in item.converted),
            "shards": [asdict(item) for item in packed],
        }
    pack.replace(path, (json.dumps(manifest, indent=2) + "\n").encode())
    return manifest
