"""The index of the original archives. Images are read in place: nothing is unpacked in between."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from muster.errors import JobError, NotFound

_PIECE = 4 << 20
_CHECK = re.compile(r"(?P<which>train|val|devkit)=(?P<kind>size|md5|sha1|sha256):(?P<value>[0-9a-fA-F]+)")
_DIGITS = {"md5": 32, "sha1": 40, "sha256": 64}
_IMAGE = (".jpeg", ".jpg")


@dataclass(frozen=True)
class Image:
    """The bytes of an archive that are one image."""

    name: str
    offset: int
    size: int
    label: int


@dataclass(frozen=True)
class Check:
    """The expected size or checksum of an archive, from the user."""

    which: str
    kind: str
    value: str


def parse_check(text: str) -> Check:
    """`train=sha256:…`, `val=size:…` and the like."""
    match = _CHECK.fullmatch(text)
    if match is None:
        raise JobError(
            f"--check {text}: this is not WHICH=KIND:VALUE.",
            "WHICH is train, val or devkit; KIND is size, md5, sha1 or sha256. Such as: --check val=size:6744924160",
        )
    which, kind, value = match.groups()
    if kind == "size" and not value.isdigit():
        raise JobError(
            f"--check {text}: {value} is no size.",
            "A size is a number of bytes, only digits. Such as: --check val=size:6744924160",
        )
    if kind != "size" and len(value) != _DIGITS[kind]:
        raise JobError(
            f"--check {text}: {kind} has {_DIGITS[kind]} digits, and this has {len(value)}.",
            f"Copy all of the checksum, or give another kind: {', '.join(f'{k} has {n}' for k, n in _DIGITS.items())}.",
        )
    return Check(which, kind, value.lower())


def verify_size(archive: Path, checks: Sequence[Check]) -> None:
    """Compare an archive's size with the expected one, which costs nothing."""
    size = size_of(archive)
    for check in checks:
        if check.kind == "size" and int(check.value) != size:
            raise JobError(
                f"{archive} has {size} bytes; --check says {check.value}.", "Download it again, or correct --check."
            )


def verify_checksums(archive: Path, checks: Sequence[Check], progress: Callable[[int], None]) -> None:
    """Read a whole archive and compare its checksums with the expected ones."""
    digests = {check.kind: hashlib.new(check.kind, usedforsecurity=False) for check in checks}
    with archive.open("rb") as file:
        while piece := file.read(_PIECE):
            for digest in digests.values():
                digest.update(piece)
            progress(len(piece))
    for check in checks:
        found = digests[check.kind].hexdigest()
        if found != check.value:
            raise JobError(
                f"the {check.kind} of {archive} is {found}; --check says {check.value}.",
                "The archive is damaged or a different one: download it again, or correct --check.",
            )


def train_images(
    archive: Path, workers: Executor, progress: Callable[[int], None]
) -> tuple[tuple[str, ...], list[Image]]:
    """The classes in the order of their names, and every image; the archive holds an inner archive for each class."""
    inner = _members(archive, (".tar",), "archives of classes (n01440764.tar …)")
    inner.sort(key=lambda member: member.name)
    classes = tuple(sorted(PurePosixPath(member.name).stem for member in inner))
    if len(set(classes)) != len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise JobError(f"{archive} holds the class {twice} twice.", "Is it the original archive?")
    numbers = {name: number for number, name in enumerate(classes)}
    jobs = [
        workers.submit(_inner_images, archive, member, numbers[PurePosixPath(member.name).stem]) for member in inner
    ]
    images: list[Image] = []
    for member, job in zip(inner, jobs, strict=True):
        images += job.result()
        progress(member.size)
    return classes, images


def val_images(
    archive: Path, labels: Mapping[str, int] | Sequence[int], progress: Callable[[int], None]
) -> list[Image]:
    """The validation images with their labels, by name or in the order of their names."""
    members = sorted(_members(archive, _IMAGE, "images", progress), key=lambda member: member.name)
    names = [PurePosixPath(member.name).name for member in members]
    if not isinstance(labels, Mapping):
        if len(labels) != len(names):
            raise JobError(
                f"{archive} has {len(names)} images, and there are {len(labels)} labels.",
                "There must be one label for each image: is the archive complete, and do the labels belong to it?",
            )
        labels = dict(zip(names, labels, strict=True))
    missing = [name for name in names if name not in labels]
    if missing:
        raise JobError(
            f"{len(missing)} of the {len(names)} images of {archive} have no label; the first is {missing[0]}.",
            "Add a line of its name and its class to --val-labels.",
        )
    return [
        Image(name, member.offset_data, member.size, labels[name]) for name, member in zip(names, members, strict=True)
    ]


def _members(
    archive: Path, endings: tuple[str, ...], what: str, progress: Callable[[int], None] = lambda count: None
) -> list[tarfile.TarInfo]:
    size, found = size_of(archive), []
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if member.isfile() and member.name.lower().endswith(endings):
                    found.append(member)
                    progress(member.size)
    except (tarfile.TarError, EOFError) as error:
        raise JobError(f"{archive} cannot be read as a tar archive: {error}.", "Download it again.") from error
    if not found:
        raise JobError(f"{archive} holds no {what}.", "Is it the original archive?")
    last = max(found, key=lambda member: member.offset_data)
    if last.offset_data + last.size > size:
        raise JobError(f"{archive} is cut off inside {last.name}.", "Download the rest of it.")
    return found


def _inner_images(archive: Path, inner: tarfile.TarInfo, label: int) -> list[Image]:
    with archive.open("rb") as file:
        window = _Window(file.fileno(), inner.offset_data, inner.size)
        try:
            with tarfile.open(fileobj=window, mode="r:") as tar:  # type: ignore[call-overload]
                members = [member for member in tar if member.isfile()]
        except (tarfile.TarError, EOFError) as error:
            raise JobError(f"{inner.name} in {archive} is damaged: {error}.", "Download the archive again.") from error
    if not members:
        raise JobError(f"{inner.name} in {archive} holds no image.", "Download the archive again.")
    cut = [member for member in members if member.offset_data + member.size > inner.size]
    if cut:
        raise JobError(f"{inner.name} in {archive} is cut off inside {cut[0].name}.", "Download the archive again.")
    return [
        Image(PurePosixPath(member.name).name, inner.offset_data + member.offset_data, member.size, label)
        for member in sorted(members, key=lambda member: member.name)
    ]


class _Window:
    """A part of a file as a file object, with what tarfile needs of one."""

    def __init__(self, descriptor: int, begin: int, size: int) -> None:
        self._descriptor, self._begin, self._size, self._at = descriptor, begin, size, 0

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        data = os.pread(self._descriptor, left if count < 0 else min(count, left), self._begin + self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at


def size_of(archive: Path) -> int:
    """Its bytes; says what is missing where there is no such file."""
    try:
        return archive.stat().st_size
    except FileNotFoundError:
        raise NotFound(f"there is no archive {archive}.", "It is not downloaded for you: ImageNet has terms.") from None
