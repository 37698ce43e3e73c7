"""The index of a folder of shards: how many samples each has, and the hash that it must have."""

from __future__ import annotations

from pathlib import Path

from muster.errors import JobError
from muster.host.files import read_json, write_file, write_json
from muster.shards import tar
from muster.wire.codec import WireError, from_json, to_json
from muster.wire.message import wire

INDEX = "shards.json"
PLACES = ".json"
"""The suffix, after a shard's name, of the file with its samples' places."""

_AGAIN = "Make it again with `muster data index`."


@wire
class PackedShard:
    """One shard."""

    name: str
    samples: int
    size: int
    sha256: str


@wire
class ShardIndex:
    """The contents of a folder of shards, kept in it as `shards.json`."""

    samples: int
    bytes: int
    classes: tuple[str, ...]
    """The name of each label, in order; empty if samples have no labels from their folders."""
    shards: tuple[PackedShard, ...]
    layout: str = "tar"


def index_from(document: object, where: str) -> ShardIndex:
    """Read what `write_index` wrote."""
    try:
        index = from_json(ShardIndex, document)
    except WireError as error:
        raise JobError(f"{where} is no index of shards: {error}.", _AGAIN) from error
    for shard in index.shards:
        if not 0 <= shard.samples * tar.BLOCK <= shard.size:
            raise JobError(
                f"{where} is damaged: {shard.name} has {shard.samples} samples in {shard.size} bytes.", _AGAIN
            )
    if index.samples != sum(shard.samples for shard in index.shards):
        raise JobError(f"{where} is damaged: its shards do not hold the {index.samples} samples that it names.", _AGAIN)
    return index


def read_index(folder: Path) -> ShardIndex | None:
    """The folder's index; None where it has none."""
    path = folder / INDEX
    return index_from(read_json(path), str(path)) if path.exists() else None


def write_index(folder: Path, index: ShardIndex) -> None:
    write_json(folder / INDEX, to_json(index), indent=1, durable=True)


def write_places(shard: Path, places: tar.Places) -> None:
    write_file(shard.with_name(shard.name + PLACES), places.to_text())


def places_of(shard: Path, beside: Path | None = None) -> tar.Places:
    """The places of a shard's samples: read from the file next to it, or found by a scan."""
    kept = beside or shard.with_name(shard.name + PLACES)
    try:
        known = tar.places_from_text(kept.read_text(), shard.stat().st_size)
    except (FileNotFoundError, UnicodeDecodeError):
        known = None
    return known or tar.scan(shard)
