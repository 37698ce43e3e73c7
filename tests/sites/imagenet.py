"""Small archives with the layout of the original ImageNet ones, made of drawn pictures."""

from __future__ import annotations

import io
import random
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Archives:
    train: Path
    val: Path
    val_labels: Path
    classes: tuple[str, ...]


def make_archives(folder: Path, classes: int = 4, per_class: int = 8, val: int = 10, seed: int = 0) -> Archives:
    """One archive of archives, one of images, and a list of labels; a PNG and a CMYK image are among them."""
    source = random.Random(seed)
    names = tuple(f"n{1440764 + 17 * number:08d}" for number in range(classes))
    folder.mkdir(parents=True, exist_ok=True)
    made = Archives(folder / "train.tar", folder / "val.tar", folder / "val.txt", names)
    # Not in the order of their names, as in the original.
    with tarfile.open(made.train, "w") as outer:
        for label in source.sample(range(classes), classes):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(per_class):
                    kind = {0: "PNG", 1: "CMYK"}.get(number, "JPEG") if label == 0 else "JPEG"
                    _add(tar, f"{names[label]}_{number}.JPEG", _picture(source, label, classes, kind))
            _add(outer, f"{names[label]}.tar", inner.getvalue())
    lines = []
    with tarfile.open(made.val, "w") as tar:
        for number in range(1, val + 1):
            label = number % classes
            name = f"ILSVRC2012_val_{number:08d}.JPEG"
            _add(tar, name, _picture(source, label, classes, "JPEG"))
            lines.append(f"{name} {names[label]}\n")
    made.val_labels.write_text("".join(lines))
    return made


def _picture(source: random.Random, label: int, classes: int, kind: str) -> bytes:
    """A plain colour for the class, with a square somewhere."""
    from PIL import Image, ImageDraw

    width, height = source.randint(40, 80), source.randint(40, 80)
    picture = Image.new("HSV", (width, height), (255 * label // classes, 200, 180)).convert("RGB")
    left, top = source.randrange(width - 16), source.randrange(height - 16)
    ImageDraw.Draw(picture).rectangle((left, top, left + 12, top + 12), fill=(source.randrange(256),) * 3)
    out = io.BytesIO()
    if kind == "CMYK":
        picture.convert("CMYK").save(out, "JPEG")
    else:
        picture.save(out, kind)
    return out.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
