"""Code snapshots: every file once by its hash, and a manifest that names them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from muster import errors
from muster.host.files import safe_path
from muster.store.backend import Store
from muster.store.encryption import Damaged
from muster.store.pieces import pieces_of
from muster.wire.code import Manifest, SnapshotFiles, digest_of
from muster.wire.codec import from_json, to_json


class Snapshots:
    """Content-addressed folders in the workspace store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._whole: set[str] = set()
        """Snapshots that were checked in this life of the server."""

    def missing(self, files: Manifest) -> list[str]:
        """Hashes that the store does not have yet, or has in the wrong size, as after a power cut on a bad disk."""
        sizes = {entry[0]: entry[1] for entry in files.values()}
        return sorted(sha256 for sha256, size in sizes.items() if not self._there(sha256, size))

    def _there(self, sha256: str, size: int) -> bool:
        name = _blob(sha256)
        # One check is enough for a remote store: such stores keep what they have accepted.
        return self._store.exists(name) and (self._store.local_root is None or self._store.size(name) == size)

    def put_blob(self, sha256: str, pieces: Iterator[bytes]) -> int:
        return self._store.put(_blob(sha256), pieces, sha256=sha256)

    def put(self, digest: str, files: Manifest) -> None:
        """Register a set of files; all of their bytes must be in the store."""
        for path in files:
            safe_path(path)
        if digest_of(files) != digest:
            raise errors.JobError(f"the snapshot {digest} does not match its files", "Send it again.")
        hashes = {entry[0] for entry in files.values()}
        if missing := [sha256 for sha256 in hashes if not self._store.exists(_blob(sha256))]:
            raise errors.Conflict(f"{len(missing)} files of the snapshot are not uploaded", "Upload them first.")
        for path, (sha256, size, _) in files.items():
            if (found := self._store.size(_blob(sha256))) != size:
                raise errors.JobError(
                    f"{path} of the snapshot has {found:,} bytes, and the manifest says {size:,}", "Send it again."
                )
        self._store.put(_manifest(digest), [json.dumps(to_json(files), sort_keys=True).encode()])
        self._whole.add(digest)

    def has(self, digest: str) -> bool:
        """Whether it is there and complete; a damaged one counts as missing, so that it is sent again."""
        if not self._store.exists(_manifest(digest)):
            return False
        if digest not in self._whole and self._is_whole(digest):
            self._whole.add(digest)
        return digest in self._whole

    def _is_whole(self, digest: str) -> bool:
        try:
            return self._store.local_root is None or not self.missing(self.files(digest))
        except (errors.MusterError, OSError):
            return False

    def forget(self, digest: str) -> None:
        """Remove the manifest of a set of files; their bytes may belong to others."""
        self._whole.discard(digest)
        self._store.remove(_manifest(digest))

    def files(self, digest: str) -> Manifest:
        try:
            files = from_json(SnapshotFiles, {"files": json.loads(self._store.read(_manifest(digest)))}).files
        except ValueError as error:
            raise Damaged(f"the list of files of the snapshot {digest} is damaged: {error}") from error
        if digest_of(files) != digest:
            raise Damaged(f"the list of files of the snapshot {digest} is not the one that was sent")
        return files

    def open(self, digest: str, path: str) -> tuple[int, BinaryIO]:
        """The size and the bytes of one file of a snapshot."""
        found = self.files(digest).get(path)
        if found is None:
            raise errors.NotFound(f"the code snapshot {digest[:12]} has no file {path!r}")
        sha256, size, _ = found
        return size, self._store.open(_blob(sha256))

    def archive(self, digest: str) -> Iterator[bytes]:
        """The snapshot as a tar stream."""
        try:
            yield from self._archive(digest)
        except (errors.MusterError, OSError):
            # The next caller learns that it is missing.
            self._whole.discard(digest)
            raise

    def _archive(self, digest: str) -> Iterator[bytes]:
        for path, (sha256, size, mode) in self.files(digest).items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = size, mode
            yield info.tobuf(tarfile.PAX_FORMAT)
            if self._store.size(_blob(sha256)) != size:
                # Otherwise the bytes of one file could pose as the headers of others.
                raise Damaged(f"{path} of the snapshot {digest} has another size than its manifest says")
            with self._store.open(_blob(sha256)) as file:
                yield from pieces_of(file)
            yield b"\0" * (-size % tarfile.BLOCKSIZE)
        yield b"\0" * tarfile.BLOCKSIZE * 2


def _blob(sha256: str) -> str:
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise errors.JobError(f"{sha256!r} is not a sha256", "Give 64 hexadecimal digits.")
    return f"code/blobs/{sha256[:2]}/{sha256}"


def _manifest(digest: str) -> str:
    return f"code/snapshots/{_blob(digest).rpartition('/')[2]}.json"
