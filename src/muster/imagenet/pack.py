"""Writes shards: tar files of pairs NAME.jpg and NAME.cls. The same input gives the same bytes."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from muster.errors import Conflict, JobError
from muster.host.files import write_json
from muster.host.locks import FileLock
from muster.imagenet.archives import Image
from muster.shards.tar import BLOCK, TAR_END, header, padded
from muster.wire.codec import from_json

_TAR_END = 10_240
_PLAN = "plan.json"
_DONE = "shards.jsonl"
_LOCK = ".lock"


@dataclass(frozen=True)
class Shard:
    """One file to write: its name and its images in order."""

    name: str
    images: tuple[Image, ...]


@dataclass(frozen=True)
class Packed:
    """One file that was written."""

    name: str
    images: int
    size: int
    sha256: str
    converted: tuple[str, ...]
    """Images that were not plain RGB JPEGs and were converted."""


@dataclass(frozen=True)
class Work:
    """What must be unchanged for shards of an earlier start to count."""

    archive: str
    archive_size: int
    images: int
    classes: int
    labels_sha256: str
    """Other labels make other shards."""
    images_per_shard: int
    resize: int | None
    seed: int


def plan_shards(images: Sequence[Image], per_shard: int, seed: int, prefix: str) -> list[Shard]:
    """Shuffle all images and cut them into shards of about the same length."""
    mixed = list(images)
    random.Random(seed).shuffle(mixed)
    count = max(1, round(len(mixed) / per_shard))
    cuts = [len(mixed) * number // count for number in range(count + 1)]
    return [
        Shard(f"{prefix}-{number:05d}.tar", tuple(mixed[cuts[number] : cuts[number + 1]])) for number in range(count)
    ]


def room_needed(shards: Iterable[Shard]) -> int:
    """Bytes on disk, if no image is made smaller."""
    return sum(_TAR_END + sum(4 * BLOCK + image.size + BLOCK for image in shard.images) for shard in shards)


@contextmanager
def sole_writer(out: Path) -> Iterator[None]:
    """Nobody else writes to the folder meanwhile: two writers would corrupt each other's shards."""
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / _LOCK, required=False).try_acquire()
    if lock is None:
        raise Conflict(
            f"another `muster data imagenet` writes to {out} right now", "Wait for its end, or give another --out."
        )
    with lock:
        yield


@contextmanager
def full_disk_explained(out: Path, packings: Collection[Packing]) -> Iterator[None]:
    """A full disk is an interruption like any other: the user makes room and starts again."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        written, planned = sum(len(item.done) for item in packings), sum(len(item.shards) for item in packings)
        raise JobError(
            f"{out} has no room left. Shards that are written, and stay: {written} of {planned}.",
            "Free some; the same command then goes on from here.",
        ) from error


class Packing:
    """The shards of one folder; shards of an earlier start are kept if its work was the same.

    Nothing is written before `write`.
    """

    def __init__(self, folder: Path, about: Work, archive: Path, shards: Sequence[Shard]) -> None:
        self.folder = folder
        self.shards = shards
        self._about, self._archive = about, archive
        self._lock = threading.Lock()
        plan = folder / _PLAN
        # A plan without any finished shard does not bind later starts.
        if plan.exists() and any(folder.glob("*.tar")) and json.loads(plan.read_text()) != asdict(about):
            raise Conflict(
                f"{folder} holds shards that were made in another way ({plan} says how)",
                "Give another --out, or remove the folder.",
            )
        self.done = {packed.name: packed for packed in self._read_done()}

    @property
    def left(self) -> list[Shard]:
        return [shard for shard in self.shards if shard.name not in self.done]

    def write(self, workers: Executor, advance: Callable[[int], None]) -> None:
        """Write what is left, several at once; each shard counts from the moment that it is complete on disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / _PLAN, asdict(self._about), indent=2)
        jobs = [workers.submit(self._write_one, shard, advance) for shard in self.left]
        try:
            for job in as_completed(jobs):
                job.result()
        finally:
            for job in jobs:
                job.cancel()

    def _write_one(self, shard: Shard, advance: Callable[[int], None]) -> None:
        packed, index = _pack(self._archive, shard, self._about.resize, self.folder / shard.name, advance)
        write_json(self.folder / f"{shard.name}.index", index)
        with self._lock, (self.folder / _DONE).open("a") as file:
            # The line break comes first, so that a truncated line before it does not spoil this one.
            file.write("\n" + json.dumps(asdict(packed)))
            file.flush()
            os.fsync(file.fileno())
            self.done[packed.name] = packed

    def _read_done(self) -> list[Packed]:
        try:
            lines = (self.folder / _DONE).read_text().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in filter(None, lines):
            try:
                packed = from_json(Packed, json.loads(line))
            except ValueError:
                continue  # cut off by the end of an earlier start
            path = self.folder / packed.name
            if path.exists() and path.stat().st_size == packed.size:
                found.append(packed)
        return found


def _pack(
    archive: Path, shard: Shard, resize: int | None, target: Path, advance: Callable[[int], None]
) -> tuple[Packed, list[tuple[int, int, int]]]:
    digest, index, converted, size = hashlib.sha256(), [], [], 0
    # Always the same name, so that a killed start leaves nothing behind: the next one overwrites it.
    part = target.with_name(f".{target.name}.part")
    with _removed_on_failure(part), archive.open("rb") as source, part.open("wb") as file:

        def put(data: bytes) -> None:
            nonlocal size
            file.write(data)
            digest.update(data)
            size += len(data)

        for number, image in enumerate(shard.images):
            jpeg, changed = _as_jpeg(_read(source.fileno(), archive, image), image, archive, resize)
            if changed:
                converted.append(image.name)
            put(header(f"{number:06d}.jpg", len(jpeg)))
            index.append((size, len(jpeg), image.label))
            put(padded(jpeg))
            label = str(image.label).encode()
            put(header(f"{number:06d}.cls", len(label)) + padded(label))
            advance(image.size)
        put(TAR_END)
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    return Packed(shard.name, len(shard.images), size, digest.hexdigest(), tuple(converted)), index


@contextmanager
def _removed_on_failure(part: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _read(descriptor: int, archive: Path, image: Image) -> bytes:
    data = os.pread(descriptor, image.size, image.offset)
    if len(data) != image.size:
        raise JobError(f"{archive} is cut off inside {image.name}.", "Was it changed meanwhile? Download it again.")
    return data


def _as_jpeg(data: bytes, image: Image, archive: Path, resize: int | None) -> tuple[bytes, bool]:
    """An RGB or grey JPEG unchanged; a PNG, a CMYK JPEG, or one that is too large, re-encoded."""
    from PIL import Image as PillowImage
    from PIL import UnidentifiedImageError

    try:
        with PillowImage.open(io.BytesIO(data)) as given:
            plain = given.format == "JPEG" and given.mode in ("RGB", "L")
            shorter = min(given.size)
            if plain and (resize is None or shorter <= resize):
                return data, False
            made = given if given.mode == "RGB" else given.convert("RGB")
            if resize is not None and shorter > resize:
                width, height = (max(1, round(side * resize / shorter)) for side in given.size)
                made = made.resize((width, height), PillowImage.Resampling.BICUBIC, reducing_gap=2.0)
            out = io.BytesIO()
            made.save(out, "JPEG", quality=95)
            return out.getvalue(), not plain
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise JobError(f"{image.name} in {archive} is no image: {error}.", "Download the archive again.") from error
