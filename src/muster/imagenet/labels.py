"""The labels of the validation images: from the development kit, or from a list."""

from __future__ import annotations

import io
import lzma
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import JobError, MissingExtra, NotFound
from muster.imagenet.classes import Line, read_lines

_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
_META = "meta.mat"
_FORM = "a class in each line, or a file's name and its class"


def from_list(path: Path, classes: Sequence[str]) -> dict[str, int] | list[int]:
    """Lines `FILE CLASS`, or a class per line in the order of the files' names; a class is a name or a number."""
    lines = read_lines(path, "list of labels", _FORM)
    width = len(lines[0].words)
    for line in lines:
        if len(line.words) != width or width > 2:
            raise JobError(
                f"{path}:{line.number}: this line has {len(line.words)} words, and line {lines[0].number} {width}.",
                f"Every line must have the same one or two words: {_FORM}.",
            )
    numbers = {name: number for number, name in enumerate(classes)}
    labels = [_label(path, line, numbers) for line in lines]
    return labels if width == 1 else _by_file(path, lines, labels)


def _label(path: Path, line: Line, numbers: Mapping[str, int]) -> int:
    word = line.words[-1]
    label = int(word) if word.isascii() and word.isdigit() else numbers.get(word, -1)
    if not 0 <= label < len(numbers):
        names = list(numbers)
        raise JobError(
            f"{path}:{line.number}: there is no class {word!r}.",
            f"Classes are the {len(names)} names {names[0]} … {names[-1]}, or the numbers 0 … {len(names) - 1}.",
        )
    return label


def _by_file(path: Path, lines: Sequence[Line], labels: Sequence[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for line, label in zip(lines, labels, strict=True):
        name = line.words[0]
        if found.setdefault(name, label) != label:
            raise JobError(
                f"{path}:{line.number}: {name} is listed twice, with the classes {found[name]} and {label}.",
                "A file has one class: remove the line that is wrong.",
            )
    return found


def from_devkit(archive: Path, classes: Sequence[str]) -> list[int]:
    """The kit numbers classes in its own order; its table maps the numbers."""
    try:
        with tarfile.open(archive) as tar:
            members = {Path(member.name).name: member for member in tar if member.isfile()}
            truth, meta = (_content(tar, members, archive, name) for name in (_TRUTH, _META))
    except FileNotFoundError:
        raise NotFound(
            f"there is no development kit {archive}.", "It is not downloaded for you: ImageNet has terms."
        ) from None
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise JobError(f"{archive} cannot be read: {error}.", "Download it again.") from error
    names = _names_of_numbers(archive, meta)
    numbers = {name: number for number, name in enumerate(classes)}
    labels = []
    for count, word in enumerate(truth.decode(errors="replace").split(), 1):
        if not (word.isascii() and word.isdigit()):
            raise JobError(
                f"{_TRUTH} in {archive} is damaged: its entry {count} is {word[:40]!r}, not the number of a class.",
                "Download the kit again, or give the labels as a list with --val-labels.",
            )
        name = names.get(int(word), "")
        if name not in numbers:
            raise JobError(
                f"{archive} speaks of class {word} ({name or 'unknown'}), which is none of the {len(classes)} classes"
                f" {classes[0]} … {classes[-1]}.",
                "Are all archives of the same ImageNet, and is the training archive complete?",
            )
        labels.append(numbers[name])
    return labels


def _content(tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], archive: Path, name: str) -> bytes:
    file = tar.extractfile(members[name]) if name in members else None
    if file is None:
        raise JobError(
            f"{archive} has no {name} inside.",
            "Download the complete kit of the classification task (t12).",
        )
    return file.read()


def _names_of_numbers(archive: Path, meta: bytes) -> dict[int, str]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise MissingExtra(
            "the development kit's table of classes is a MATLAB file, which scipy reads",
            "pip install scipy, or give the labels as a list with --val-labels.",
        ) from None
    try:
        rows: Any = loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
    except Exception as error:  # what a damaged file makes scipy raise is documented nowhere
        raise JobError(
            f"{_META} in {archive} holds no table `synsets` of classes that can be read"
            f" ({type(error).__name__}: {error}).",
            "Download the kit again, or give the labels as a list with --val-labels.",
        ) from error
