"""Files in folders of this machine: a local datastore, a mounted share."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from muster.host.files import flush_to_disk, replacing
from muster.host.hashing import Measuring, measure_open
from muster.storage.connectors.base import PIECE_BYTES, SourceChanged, TransferError, check_unchanged
from muster.store.pieces import HashedPieces, pieces_of
from muster.wire.data.access import FileEntry, file_etag


class Folder:
    """A folder or one file."""

    def __init__(self, path: str, label: str = "") -> None:
        self.root = Path(path)
        self.label = label or path

    def listing(self, folder: str = "") -> Iterator[FileEntry]:
        try:
            yield from _walk(self.path_of(folder), "")
        except (FileNotFoundError, NotADirectoryError) as error:
            if not folder:
                raise self._unavailable(error) from error
        except OSError as error:
            raise self._unavailable(error) from error

    def stat(self, path: str) -> FileEntry | None:
        target = self.path_of(path)
        try:
            return _entry("", target.stat()) if target.is_file() else None
        except OSError as error:
            raise self._unavailable(error) from error

    def path_of(self, path: str) -> Path:
        return self.root / path if path else self.root

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        path = self.path_of(entry.path)
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            filled = 0
            while filled < len(view):
                count = file.readinto(view[filled:])
                if not count:
                    raise SourceChanged(str(path))
                filled += count
            self.check(entry, os.fstat(file.fileno()))

    def check(self, entry: FileEntry, status: os.stat_result) -> None:
        """Raise SourceChanged if a file is no longer the listed version."""
        if entry.etag and _entry("", status).etag != entry.etag:
            raise SourceChanged(str(self.path_of(entry.path)))

    def pieces(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self.path_of(path).open("rb") as file:
            file.seek(offset)
            yield from pieces_of(file, length)

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        target = self.path_of(path)
        if fresh and target.exists():
            raise FileExistsError(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with HashedPieces(pieces) as hashed, replacing(target) as file:
            for piece in hashed:
                file.write(piece)
            hashed.verify(path, sha256)
            flush_to_disk(file)
        return hashed.size

    def known(self, name: str) -> tuple[int, str | None] | None:
        try:
            with self.path_of(name).open("rb") as file:
                found = measure_open(file)
                return found.size, found.sha256
        except FileNotFoundError:
            return None

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        target = self.path_of(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        measuring = Measuring()
        with path.open("rb", buffering=0) as source, replacing(target, mode=stat.S_IMODE(path.stat().st_mode)) as file:
            while piece := source.read(PIECE_BYTES):
                measuring.add(piece)
                file.write(piece)
                moved(len(piece))
            check_unchanged(path, measuring.sha256, sha256)
            flush_to_disk(file)

    def check_writable(self, name: str) -> None:
        target = self.path_of(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
        if name:
            self._tidy(name)

    def move(self, name: str, new_name: str) -> None:
        target = self.root / new_name
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).replace(target)
        self._tidy(name)

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)
        self._tidy(path)

    def _tidy(self, name: str) -> None:
        """Remove the folders that are left empty."""
        for folder in (self.root / name).parents:
            if folder == self.root:
                break
            try:
                folder.rmdir()
            except OSError:
                break

    def _unavailable(self, error: OSError) -> TransferError:
        return TransferError("data_unavailable", f"{self.label}: {error.strerror}")


def _walk(folder: Path, above: str) -> Iterator[FileEntry]:
    for item in sorted(os.scandir(folder), key=lambda item: item.name):
        path = f"{above}{item.name}"
        if item.is_dir(follow_symlinks=False):
            yield from _walk(Path(item.path), f"{path}/")
        elif item.is_file():
            yield _entry(path, item.stat())


def _entry(path: str, status: os.stat_result) -> FileEntry:
    return FileEntry(path, status.st_size, etag=file_etag(status.st_size, status.st_mtime))
