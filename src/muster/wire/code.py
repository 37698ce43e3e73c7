"""Snapshots of code: folders by the hashes of their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from muster.wire.message import wire

Manifest = Mapping[str, tuple[str, int, int]]
"""Path below the folder, with `/`, to [sha256, size in bytes, mode]; mode is 0o644 or 0o755."""


def digest_of(files: Mapping[str, Sequence[str | int]]) -> str:
    """The name of a snapshot: the same files give the same digest, whoever made them."""
    plain = {path: list(entry) for path, entry in files.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@wire
class SnapshotFiles:
    """The body of `POST snapshots/missing` and `PUT snapshots/DIGEST`; the answer to `GET snapshots/DIGEST`."""

    files: Manifest


@wire
class CodeFile:
    """A file of a snapshot."""

    path: str
    sha256: str
    size: int


@wire
class MissingBlobs:
    """The contents of a snapshot that the server lacks."""

    digest: str
    missing: tuple[str, ...]
    known: bool
    """The server has the whole snapshot."""


@wire
class BlobHead:
    """The JSON line before the bytes of one content in `POST blobs`."""

    sha256: str
    size: int


@wire
class BlobsStored:
    """The answer to `POST blobs`."""

    stored: int


@wire
class SnapshotStored:
    """The answer to `PUT snapshots/DIGEST`."""

    digest: str
