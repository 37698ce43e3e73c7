"""Connectors: one interface for every kind of storage, for the server and for movers on nodes.

Standard library only. Paths are relative to the connector's root; the empty path is the root itself, where that is one
file. A file's version as its storage gives it (`etag`) is kept without quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from muster.wire.data.access import FileEntry

BLOCK_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
REFUSED_NEXT = (
    "Is the credential right, not expired, and wide enough? `muster datastore test NAME` says what it may do; "
    "`muster datastore create NAME --replace` changes it."
)
UNREACHABLE_NEXT = (
    "Check the address, and the network and proxy of the machine that asked; for a datastore, "
    "`muster datastore test NAME` tries it from the server."
)
ONE_FILE = "file"
"""The name of a source that is one file and has no name of its own."""


class TransferError(Exception):
    """A transfer that failed, with one of the verdict's codes. If it is final, trying again does not help."""

    def __init__(
        self,
        code: str,
        message: str,
        final: bool = False,
        status: int | None = None,
        reason: str = "",
        next: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.next = next
        """What the user can do about it, where the advice for its code does not fit."""
        self.final = final
        self.status = status
        """The HTTP status that a service answered with."""
        self.reason = reason
        """The service's own code for it, such as `ContainerNotFound`."""


class SourceChanged(TransferError):
    """A file is no longer the version that was listed."""

    def __init__(self, what: str) -> None:
        super().__init__("data_unavailable", f"{what} changed while it was being read")
        self.what = what


class AccessRefused(TransferError):
    """The storage did not accept the token; if a fresh one does not help, nothing will."""

    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__("data_unavailable", message, True, status, reason, REFUSED_NEXT)


class Source(Protocol):
    """Where bytes come from; used by several threads at once."""

    label: str
    """The root's address in messages."""

    def listing(self, folder: str = "") -> Iterable[FileEntry]:
        """Every file below a folder, with its path relative to that."""

    def stat(self, path: str) -> FileEntry | None:
        """One file (with the hash where the storage knows it), or None where there is none of that name."""

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        """Fill the view with the file's bytes from the offset on; raises SourceChanged if the version differs."""


class Connector(Source, Protocol):
    """A storage that can be written to as well."""

    def pieces(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]: ...

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        """Write all of it or nothing; with `fresh`, raises FileExistsError if the name is taken. Returns the size."""

    def remove(self, path: str) -> None:
        """Remove the file, if it exists."""


class Sink(Connector, Protocol):
    """A storage that nodes send their outputs to, from files."""

    def known(self, name: str) -> tuple[int, str | None] | None:
        """Size and hash of the file by that name; None if there is none."""

    def put(self, name: str, path: Path, size: int, sha256: str, moved: Callable[[int], None]) -> None:
        """Write a file whole or not at all."""

    def check_writable(self, name: str) -> None:
        """Raise the error that a `put` by that name would; leaves nothing behind."""

    def move(self, name: str, new_name: str) -> None:
        """Rename a file, replacing any file that has the new name."""


class Streaming(Protocol):
    """A source whose server may not support ranges."""

    def has_ranges(self, entry: FileEntry) -> bool: ...

    def whole(self, entry: FileEntry) -> Iterator[bytes]: ...


def without_ranges(source: Source, entries: Iterable[FileEntry]) -> Streaming | None:
    """The source, if its server sends large files only whole; the first of them is tried."""
    large = next((entry for entry in entries if entry.size > BLOCK_BYTES), None)
    if large is None or not hasattr(source, "has_ranges"):
        return None
    streaming: Streaming = source  # type: ignore[assignment]
    return None if streaming.has_ranges(large) else streaming


def read_through(source: Source, entry: FileEntry) -> Iterator[bytes]:
    """A file's bytes in order."""
    if (streaming := without_ranges(source, [entry])) is not None:
        yield from streaming.whole(entry)
        return
    for offset in range(0, entry.size, BLOCK_BYTES):
        piece = bytearray(min(BLOCK_BYTES, entry.size - offset))
        source.read(entry, offset, memoryview(piece))
        yield bytes(piece)


def files_at(source: Source) -> list[FileEntry]:
    """Every file below the root, or the one file that the root is."""
    try:
        one = source.stat("")
        return [one] if one is not None else list(source.listing())
    except (OSError, ValueError) as error:
        raise TransferError("data_unavailable", f"{source.label}: {error}") from error


def check_unchanged(path: Path, found: str, wanted: str) -> None:
    """Refuse to store a file whose hash is no longer the announced one."""
    if found != wanted:
        raise SourceChanged(str(path))
