"""Calls about snapshots of code."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from muster.client.calls import LONG_S, PIECE_BYTES, Group, segment
from muster.errors import MusterError
from muster.host.files import is_safe_path
from muster.wire.code import Manifest, MissingBlobs, SnapshotFiles


class Code(Group):
    """Snapshots, and the contents that they are made of."""

    def missing_blobs(self, files: Manifest) -> MissingBlobs:
        """Whether the server has the snapshot, and which contents it lacks."""
        return self.calls.read(MissingBlobs, "POST", "/snapshots/missing", message=SnapshotFiles(files))

    def put_blobs(self, frames: Iterable[bytes]) -> None:
        """Send contents: a `BlobHead` as a JSON line and the bytes of each."""
        self.calls.send("POST", "/blobs", body=iter(frames), again=False, timeout_s=LONG_S)

    def put_snapshot(self, digest: str, files: Manifest) -> None:
        self.calls.send("PUT", f"/snapshots/{segment(digest, 'snapshot')}", message=SnapshotFiles(files))

    def download_snapshot(self, digest: str, folder: Path | str) -> None:
        """The files of a snapshot, into a folder."""
        path = f"/snapshots/{segment(digest, 'snapshot')}/archive"
        with self.calls.open(path, {}) as response, tarfile.open(fileobj=response, mode="r|") as archive:
            for member in archive:
                _unpack(archive, member, Path(folder))


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    source = archive.extractfile(member) if member.isfile() and is_safe_path(member.name) else None
    if source is None:
        raise MusterError(f"the archive holds {member.name!r}, which is no plain file below its folder")
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as out:
        shutil.copyfileobj(source, out, PIECE_BYTES)
    target.chmod(member.mode & 0o777)
