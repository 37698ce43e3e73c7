"""Data assets: named, versioned, immutable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.data.access import FileEntry, HashedFile
from muster.wire.message import wire


@wire
class NewAsset:
    """The body of `POST assets`; without `files` the server lists what lies at `address`."""

    name: str
    address: str
    version: str | None = None
    type: str | None = None
    """As found, where it is not given."""
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    run_id: str | None = None
    files: tuple[HashedFile, ...] | None = None
    """What was uploaded."""


@wire
class AssetView:
    """One version of a data asset."""

    name: str
    version: str
    number: int
    """Counts the versions in order."""
    type: str
    address: str
    num_files: int
    size: int
    digest: str | None
    """One hash over all names, sizes and hashes; None while one of them is not known."""
    description: str | None
    tags: Mapping[str, str]
    run_id: str | None
    created_by: str | None
    created_at: float
    archived_at: float | None = field(default=None, metadata=OMIT)
    """Since when it is hidden from lists and is not the latest; jobs that name it still get it."""


@wire
class AssetChange:
    """The body of `PATCH assets/NAME/versions/V`."""

    archived: bool


@wire
class AssetUses:
    """What refers to a version of a data asset."""

    active: tuple[str, ...]
    """Runs that are not over."""
    ended: int
    """How many ended runs had it as an input."""
    last: tuple[str, ...] = ()
    """The newest of these."""
    made_by: str | None = None
    """The run that produced it."""


def digest_of(found: Iterable[FileEntry]) -> str | None:
    """One hash over all names, sizes and hashes; None while a hash is not known."""
    digest = hashlib.sha256()
    for entry in sorted(found, key=lambda item: item.path):
        if entry.sha256 is None:
            return None
        digest.update(f"{entry.path}\0{entry.size}\0{entry.sha256}\n".encode())
    return digest.hexdigest()
