"""The labels of the validation images: from the development kit, or from a list."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.errors import JobError, MissingExtra, NotFound

_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_META = "meta.mat"


def from_list(path: Path, classes: Sequence[str]) -> dict[str, int] | list[int]:
    """Lines `FILE CLASS`, or a class in each line in the order of the files' names; a class is a name or a number."""
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    except FileNotFoundError:
        raise NotFound(f"there is no list of labels {path}.") from None
    widths = {len(line) for line in lines}
    if widths not in ({1}, {2}):
        raise JobError(f"{path}: every line must have a class, or a file and its class.")
    numbers = {name: number for number, name in enumerate(classes)}
    labels = []
    for count, line in enumerate(lines, 1):
        label = int(line[-1]) if line[-1].isascii() and line[-1].isdigit() else numbers.get(line[-1], -1)
        if not 0 <= label < len(classes):
            raise JobError(
                f"{path}:{count}: the training archive has no class {line[-1]!r}.",
                f"Classes are the {len(classes)} names {classes[0]} … {classes[-1]}, or the numbers from 0.",
            )
        labels.append(label)
    if widths == {1}:
        return labels
    return {line[0]: label for line, label in zip(lines, labels, strict=True)}


def from_devkit(archive: Path, classes: Sequence[str]) -> list[int]:
    """The kit numbers classes in an order of its own; its table says which is which."""
    try:
        with tarfile.open(archive) as tar:
            members = {Path(member.name).name: member for member in tar if member.isfile()}
            truth, meta = (_content(tar, members, archive, name) for name in (_TRUTH, _META))
    except FileNotFoundError:
        raise NotFound(f"there is no development kit {archive}.") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise JobError(f"{archive} cannot be read: {error}.", "Download it again.") from error
    names = _names_of_numbers(meta)
    numbers = {name: number for number, name in enumerate(classes)}
    labels = []
    for line in truth.decode().split():
        name = names.get(int(line), "")
        if name not in numbers:
            raise JobError(f"{archive} speaks of class {line} ({name or 'unknown'}); the training archive has none.")
        labels.append(numbers[name])
    return labels


def _content(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], archive: Path, name: str) -> bytes:
    file = tar.extractfile(members[name]) if name in members else None
    if file is None:
        raise JobError(f"{archive} has no {name} inside.", "Is it the kit of the classification task (t12)?")
    return file.read()


def _names_of_numbers(meta: bytes) -> dict[int, str]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise MissingExtra(
            "the development kit's table of classes is a MATLAB file, which scipy reads",
            "pip install scipy, or give the labels as a list with --val-labels.",
        ) from None
    rows: Any = loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
    return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
