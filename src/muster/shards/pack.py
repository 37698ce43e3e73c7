"""Packs a folder of files into tar shards: shuffled, by several processes, with hashes and an index.

A shard gets its name only when it is complete on disk. Shards of an earlier start are kept, if it was the same work.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from muster.errors import Conflict, JobError
from muster.host.files import UNFINISHED, replacing, sync_folder
from muster.host.locks import FileLock
from muster.shards import tar
from muster.shards.index import INDEX, PackedShard, ShardIndex, write_index, write_places
from muster.shards.listing import Names, Part, listed
from muster.wire.codec import WireError, from_json, to_json

_JOURNAL = ".packing.jsonl"
_LOCK = ".packing.lock"
_WAITING_PER_PROCESS = 2
"""Shards whose names are on their way to a process: not all names are copied at once."""


@dataclass(frozen=True)
class Request:
    """What to pack, where to, and how."""

    folder: Path
    out: Path
    per_shard: int
    seed: int | None
    """For shuffling; None keeps the order of the names."""
    labels: bool
    """Whether samples get the number of their folder as `cls`, where all lie in folders."""
    processes: int


@dataclass(frozen=True)
class SampleFiles:
    """One sample to pack."""

    key: str
    parts: tuple[Part, ...]
    label: int | None


def pack(request: Request, listed_names: Callable[[int], None], advance: Callable[[int, int], None]) -> ShardIndex:
    """Make the shards; `listed_names` is called with the number of samples, `advance` with samples and bytes done."""
    _check(request)
    names = listed(request.folder)
    if request.labels and names.beside:
        more = f" and {names.beside - 1:,} more lie" if names.beside > 1 else " lies"
        raise JobError(
            f"{names.first_beside}{more} in {request.folder} itself, and the other samples in folders of it: so no "
            "sample would have a label.",
            "Move what is no sample away, or pack without labels: --no-labels.",
        )
    listed_names(len(names))
    request.out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(request.out / _LOCK, required=False).try_acquire()
    if lock is None:
        raise Conflict(f"another `muster data pack` writes to {request.out} now.", "Wait for its end.")
    with lock, _full_disk_explained(request.out):
        return _pack(request, names, advance)


def _check(request: Request) -> None:
    if (request.out / INDEX).exists():
        raise Conflict(f"{request.out} holds packed shards already ({INDEX}).", "Give another folder, or remove it.")
    inside, outside = request.out.resolve(), request.folder.resolve()
    if inside == outside or outside in inside.parents:
        raise JobError(
            f"{request.out} lies in {request.folder}, so the shards would count as data.", "Give another folder."
        )


def _pack(request: Request, names: Names, advance: Callable[[int, int], None]) -> ShardIndex:
    order = _order(len(names), request.seed)
    classes = names.classes if request.labels else ()
    plan = _plan_name(request, names)
    for part in request.out.glob(f".shard-*{UNFINISHED}*"):
        # Left by a start that was killed; nobody else writes here while the lock is held.
        part.unlink(missing_ok=True)
    done = _read_journal(request.out, plan)
    cuts = _cuts(len(names), request.per_shard)
    todo = []
    for number in range(len(cuts) - 1):
        if shard := done.get(_name(number)):
            advance(shard.samples, shard.size)
        else:
            todo.append(number)
    with (request.out / _JOURNAL).open("a") as journal:
        for shard in _written(request, names, order, cuts, todo):
            done[shard.name] = shard
            # The line break comes first: a line that was cut off earlier spoils no other.
            journal.write("\n" + json.dumps({"plan": plan, "shard": to_json(shard)}))
            journal.flush()
            advance(shard.samples, shard.size)
    shards = tuple(done[_name(number)] for number in range(len(cuts) - 1))
    index = ShardIndex(len(names), sum(shard.size for shard in shards), classes, shards)
    write_index(request.out, index)
    (request.out / _JOURNAL).unlink()
    # Held until the end; it must not be copied with the finished shards.
    (request.out / _LOCK).unlink(missing_ok=True)
    sync_folder(request.out)
    return index


def _written(
    request: Request, names: Names, order: array[int], cuts: list[int], todo: list[int]
) -> Iterator[PackedShard]:
    """Write the remaining shards; yields each when it is done."""
    waiting: set[Future[PackedShard]] = set()
    remaining = iter(todo)
    with ProcessPoolExecutor(request.processes) as processes:
        try:
            while True:
                while len(waiting) < request.processes * _WAITING_PER_PROCESS:
                    if (number := next(remaining, None)) is None:
                        break
                    samples = _samples(names, order[cuts[number] : cuts[number + 1]], request.labels)
                    waiting.add(processes.submit(write_shard, request.folder, request.out / _name(number), samples))
                if not waiting:
                    return
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BrokenProcessPool as error:
            raise JobError(
                "a process that packs was ended from outside (out of memory?).",
                "The same command continues after the last complete shard; fewer --workers need less memory.",
            ) from error
        finally:
            for future in waiting:
                future.cancel()


def write_shard(folder: Path, target: Path, samples: list[SampleFiles]) -> PackedShard:
    """Write one shard and where its samples lie; files are read whole, one at a time."""
    digest, size = hashlib.sha256(), 0
    fields: dict[str, list[tuple[int, int]]] = {}
    with replacing(target, durable=True) as file:

        def put(data: bytes) -> None:
            nonlocal size
            file.write(data)
            digest.update(data)
            size += len(data)

        for number, sample in enumerate(samples):
            for field, content in _contents(folder, sample):
                put(tar.header(f"{number:06d}.{field}", len(content)))
                places = fields.setdefault(field, [])
                places.extend([tar.ABSENT] * (number + 1 - len(places)))
                places[number] = (size, len(content))
                put(tar.padded(content))
        put(tar.TAR_END)
    for places in fields.values():
        places.extend([tar.ABSENT] * (len(samples) - len(places)))
    write_places(target, tar.Places(size, [sample.key for sample in samples], fields))
    return PackedShard(target.name, len(samples), size, digest.hexdigest())


def _contents(folder: Path, sample: SampleFiles) -> Iterator[tuple[str, bytes]]:
    for part in sample.parts:
        try:
            yield part.field, (folder / part.path).read_bytes()
        except OSError as error:
            raise JobError(
                f"{folder / part.path} cannot be read: {error.strerror}.", "Mend or remove it, and start again."
            ) from error
    if sample.label is not None and all(part.field != "cls" for part in sample.parts):
        yield "cls", str(sample.label).encode()


def _samples(names: Names, numbers: array[int], labels: bool) -> list[SampleFiles]:
    return [SampleFiles(names.key(n), names.parts(n), names.label(n) if labels else None) for n in numbers]


def _order(count: int, seed: int | None) -> array[int]:
    order = array("q", range(count))
    if seed is not None:
        random.Random(seed).shuffle(order)
    return order


def _cuts(count: int, per_shard: int) -> list[int]:
    """Where each shard begins, and where the last one ends: all of about the same length."""
    shards = max(1, round(count / per_shard))
    return [count * number // shards for number in range(shards + 1)]


def _name(number: int) -> str:
    return f"shard-{number:05d}.tar"


def _plan_name(request: Request, names: Names) -> str:
    """A hash of what must be the same for shards of an earlier start to count."""
    how = f"{request.folder.resolve()}/{request.per_shard}/{request.seed}/{request.labels}/"
    return hashlib.sha256(how.encode("utf-8", "surrogateescape") + names.digest()).hexdigest()


def _read_journal(out: Path, plan: str) -> dict[str, PackedShard]:
    path = out / _JOURNAL
    found = {}
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            shard = from_json(PackedShard, entry["shard"])
        except (ValueError, TypeError, KeyError, WireError):
            continue  # empty, or cut off by the end of an earlier start
        if entry["plan"] != plan:
            raise Conflict(
                f"{out} holds shards of an unfinished packing of other files or with other options.",
                "Give another folder, or remove it.",
            )
        target = out / shard.name
        if target.exists() and target.stat().st_size == shard.size:
            found[shard.name] = shard
    return found


@contextmanager
def _full_disk_explained(out: Path) -> Iterator[None]:
    """A disk that fills up is an interruption like any other."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise JobError(
            f"{out} has no room left; the shards that are written stay.",
            "Free some; the same command then goes on from here.",
        ) from error


def index_folder(folder: Path, advance: Callable[[int, int], None], processes: int) -> ShardIndex:
    """Make the index of tar shards that have none: samples, hashes, and the places of the samples in each."""
    if (folder / INDEX).exists():
        raise Conflict(f"{folder} has an index already ({INDEX}).", "Remove it first if the shards have changed.")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name.endswith(".tar"))
    if not names:
        raise JobError(f"{folder} holds no .tar files.", "Give the folder that the shards lie in.")
    shards = []
    with ProcessPoolExecutor(processes) as workers:
        for shard in workers.map(_indexed, [folder / name for name in names]):
            advance(shard.samples, shard.size)
            shards.append(shard)
    index = ShardIndex(sum(shard.samples for shard in shards), sum(shard.size for shard in shards), (), tuple(shards))
    write_index(folder, index)
    return index


def _indexed(path: Path) -> PackedShard:
    places = tar.scan(path)
    write_places(path, places)
    with path.open("rb") as file:
        return PackedShard(path.name, len(places.keys), places.size, hashlib.file_digest(file, "sha256").hexdigest())
