"""Encrypted growing files: whole records are appended, and any offset of the plain text can be read."""

from __future__ import annotations

import io
import os
import secrets
import struct
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from muster.host.files import write_all
from muster.store.encryption import (
    ENDED_STREAM,
    HEADER_BYTES,
    OBJECT,
    STREAM,
    Damaged,
    PlainText,
    as_kind,
    is_encrypted,
    new_header,
    open_header,
    rewrap_file,
    write_header,
)
from muster.store.keyring import KeyRing

_OVERHEAD = 4 + 12 + 16
_END = b"end"
_STRIDE = 64 << 10
_REMEMBERED = 4096


@dataclass
class _Index:
    """The offsets of records: one for every so many bytes, the others are found from there."""

    inode: int
    cipher: AESGCM
    plain: array[int] = field(default_factory=lambda: array("Q", [0]))
    stored: array[int] = field(default_factory=lambda: array("Q", [HEADER_BYTES]))
    length: int = 0
    end: int = HEADER_BYTES
    has_ended: bool = False
    """By its header, which nobody else can write: then an empty record is the last one."""
    last: int = 0
    """Where the last record begins."""
    last_is_empty: bool = False

    def add(self, size: int) -> None:
        self.last, self.last_is_empty = self.end, size == 0
        if self.length - self.plain[-1] >= _STRIDE:
            self.plain.append(self.length)
            self.stored.append(self.end)
        self.length += size
        self.end += size + _OVERHEAD


class SealedStreams:
    """Encrypted growing files by their paths; files from before encryption was configured stay plain."""

    def __init__(self, ring: KeyRing, root: Path) -> None:
        self._ring = ring
        self._root = root
        self._known: OrderedDict[str, _Index] = OrderedDict()
        self._lock = threading.RLock()

    def length(self, path: Path) -> int | None:
        """The length of the plain text; None where the file is not encrypted (or missing)."""
        with self._lock:
            index = self._index(path)
            return index.length if index else None

    def is_object(self, path: Path) -> bool:
        """Whether it is an encrypted object; these lie next to the streams where the store is a folder."""
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
        return is_encrypted(header) and header[8:9] == OBJECT

    def takes(self, descriptor: int, path: Path) -> bool:
        """Whether appended bytes are encrypted: in a new file, and in one that was begun so."""
        with self._lock:
            size = os.fstat(descriptor).st_size
            return size == 0 or self._index(path) is not None

    def finish(self, path: Path) -> None:
        """The file is complete: from now on truncation is noticed."""
        with self._lock:
            index = self._index(path)
            if index is None or index.has_ended:
                return
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                self._add_record(descriptor, index, b"", _END)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._set_kind(path, index, ENDED_STREAM)

    def _set_kind(self, path: Path, index: _Index, kind: bytes) -> None:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
        with self._ring.writing(lambda: self.rewrap(path)):
            write_header(path, as_kind(self._ring, header, kind, self._name(path)))
        index.has_ended = kind == ENDED_STREAM

    def _check_end(self, path: Path, index: _Index) -> None:
        """Refuse a file whose header says that it has ended but whose last record does not."""
        if not index.has_ended:
            return
        with path.open("rb") as file:
            file.seek(index.last)
            record = file.read(_OVERHEAD)
        try:
            if not index.last_is_empty:
                raise InvalidTag
            index.cipher.decrypt(record[4:16], record[16:], struct.pack(">Q", index.length) + _END)
        except InvalidTag:
            raise Damaged(f"{path} was cut off at {index.length} bytes", "Take it from a backup.") from None

    def open(self, path: Path) -> BinaryIO:
        """A file object that reads its plain text."""
        with self._lock:
            if index := self._index(path):
                self._check_end(path, index)
        return io.BufferedReader(_Reader(self, path), _STRIDE)

    def rewrap(self, path: Path) -> bool:
        """Wrap the file's key in the ring's first key; returns whether that was needed."""
        return rewrap_file(self._ring, path, self._name(path))

    def append(self, descriptor: int, path: Path, data: bytes | memoryview) -> None:
        """Append a record, over one that a crash left unfinished."""
        with self._lock:
            if os.fstat(descriptor).st_size == 0:
                with self._ring.writing(lambda: self.rewrap(path)):
                    self._begin(descriptor, path)
            index = self._index(path)
            assert index is not None
            if index.has_ended and data:
                # A node that was thought lost has more.
                self._set_kind(path, index, STREAM)
            if data:
                self._add_record(descriptor, index, bytes(data))

    def _add_record(self, descriptor: int, index: _Index, data: bytes, about: bytes = b"") -> None:
        if os.fstat(descriptor).st_size != index.end:
            os.ftruncate(descriptor, index.end)
        nonce = secrets.token_bytes(12)
        sealed = index.cipher.encrypt(nonce, data, struct.pack(">Q", index.length) + about)
        write_all(descriptor, struct.pack(">I", len(data)) + nonce + sealed)
        index.add(len(data))

    def _name(self, path: Path) -> str:
        """The file's name in the workspace store, wherever the folder is."""
        return f"runs/{path.relative_to(self._root)}"

    def _begin(self, descriptor: int, path: Path) -> None:
        header, cipher = new_header(self._ring, STREAM, self._name(path))
        try:
            write_all(descriptor, header)
        except OSError:
            # Half a header would be taken for output.
            os.ftruncate(descriptor, 0)
            raise
        self._known[str(path)] = _Index(os.fstat(descriptor).st_ino, cipher)

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """Plain text from the offset on."""
        with self._lock:
            index = self._index(path)
            if index is not None:
                self._check_end(path, index)
        if index is None:
            return b""
        found = bytearray()
        with path.open("rb") as file:
            at = bisect_right(index.plain, offset) - 1
            position, stored = index.plain[at], index.stored[at]
            while len(found) < length and position < index.length:
                file.seek(stored)
                head = file.read(16)
                size = struct.unpack(">I", head[:4])[0]
                if size and position + size > offset:
                    sealed = file.read(size + 16)
                    plain = _decrypt(index.cipher, head[4:], sealed, position, path)
                    start = max(0, offset - position)
                    found += plain[start : start + length - len(found)]
                position += size
                stored += size + _OVERHEAD
        return bytes(found)

    def _index(self, path: Path) -> _Index | None:
        """The index of the file, brought up to date with the disk."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        index = self._known.get(str(path))
        if index is None or index.inode != status.st_ino or index.end > status.st_size:
            with path.open("rb") as file:
                header = file.read(HEADER_BYTES)
            if not is_encrypted(header) or len(header) < HEADER_BYTES or header[8:9] not in (STREAM, ENDED_STREAM):
                return None
            index = _Index(status.st_ino, open_header(self._ring, header, self._name(path)))
            index.has_ended = header[8:9] == ENDED_STREAM
            self._known[str(path)] = index
        self._known.move_to_end(str(path))
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        if index.end < status.st_size:
            with path.open("rb") as file:
                while index.end + _OVERHEAD <= status.st_size:
                    file.seek(index.end)
                    size = struct.unpack(">I", file.read(4))[0]
                    if index.end + size + _OVERHEAD > status.st_size:
                        break
                    index.add(size)
        return index


class _Reader(PlainText):
    """The current plain text of one stream."""

    def __init__(self, streams: SealedStreams, path: Path) -> None:
        super().__init__(streams.length(path) or 0)
        self._streams = streams
        self._path = path

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        view = memoryview(buffer).cast("B")
        data = self._streams.read(self._path, self._at, min(len(view), max(0, self._size - self._at)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _decrypt(cipher: AESGCM, nonce: bytes, sealed: bytes, position: int, path: Path) -> bytes:
    try:
        return cipher.decrypt(nonce, sealed, struct.pack(">Q", position))
    except InvalidTag:
        raise Damaged(f"{path} is damaged or was changed at {position}", "Take it from a backup.") from None
