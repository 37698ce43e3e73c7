"""Encrypted objects: AES-256-GCM in chunks, so that any range can be read without the rest.

    header  magic 8 · kind 1 · binding 1 · reserved 2 · wrapped key 68 (key id 8, nonce 12, key 32, tag 16)
            with the binding 1 the wrapped key opens under the file's own name alone, so that no file can take the
            place of another; those of earlier versions have 0 until the key is changed
    object  chunks of 64 KiB, each with its tag; the nonce is the chunk's number and whether it is the last one, so a
            chunk that is missing, moved, repeated or cut off is noticed
    stream  records as they were appended, each: length 4 · nonce 12 · ciphertext · tag 16, bound to its position; once
            it has ended, the kind says so and an empty record is the last, so that one cut at a record is noticed

Every file has a key of its own, wrapped in the workspace's; a new workspace key rewraps headers, not bodies.
"""

from __future__ import annotations

import io
import os
import secrets
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from muster import errors
from muster.store.keyring import KEY_BYTES, MAGIC, KeyRing
from muster.store.pieces import BackgroundThread

HEADER_BYTES = 80
CHUNK_BYTES = 64 << 10
TAG_BYTES = 16
OBJECT, STREAM, ENDED_STREAM = b"\0", b"\1", b"\2"
_BOUND = b"\1\0\0"
_SEALED = CHUNK_BYTES + TAG_BYTES
_AT_ONCE = 16
_SHARED_AT_ONCE = 32
_LARGE_BYTES = 8 << 20


class Damaged(errors.UserError):
    """Encrypted bytes are not those that were written."""

    code = "damaged"


def new_header(ring: KeyRing, kind: bytes, name: str) -> tuple[bytes, AESGCM]:
    """A header with a fresh file key, bound to the file's name, and the cipher of that key."""
    file_key = secrets.token_bytes(KEY_BYTES)
    about = MAGIC + kind + _BOUND
    return about + ring.wrap(file_key, _bound_to(about, name)), AESGCM(file_key)


def _bound_to(about: bytes, name: str) -> bytes:
    """What a wrapped key is bound to: the beginning of its header and, except in earlier versions, the file's name."""
    return about + os.fsencode(name) if about[9:12] == _BOUND else about


def open_header(ring: KeyRing | None, header: bytes, name: str) -> AESGCM:
    """The cipher that a header's key makes."""
    if ring is None:
        raise errors.UserError(
            f"{name} is encrypted, and workspace.json names no key", "Name the key under `encryption` there."
        )
    return AESGCM(ring.unwrap(header[12:], _bound_to(header[:12], name), name))


def rewrap(ring: KeyRing, header: bytes, name: str) -> bytes | None:
    """The header with its key wrapped in the ring's first key; None where that is not needed."""
    if not is_encrypted(header) or header[12:20] == ring.first.id:
        return None
    return as_kind(ring, header, header[8:9], name)


def as_kind(ring: KeyRing, header: bytes, kind: bytes, name: str) -> bytes:
    """The header of the same file with another kind, under the ring's first key."""
    file_key = ring.unwrap(header[12:], _bound_to(header[:12], name), name)
    about = header[:8] + kind + _BOUND
    return about + ring.wrap(file_key, _bound_to(about, name))


def rewrap_file(ring: KeyRing, path: Path, name: str) -> bool:
    """Wrap a file's key in the ring's first key; returns whether that was needed."""
    with path.open("rb") as file:
        fresh = rewrap(ring, file.read(HEADER_BYTES), name)
    if fresh is None:
        return False
    write_header(path, fresh)
    return True


def write_header(path: Path, header: bytes) -> None:
    """Only the header changes, and it is small enough for one write."""
    with path.open("r+b", buffering=0) as file:
        file.write(header)
        os.fsync(file.fileno())


def is_encrypted(header: bytes) -> bool:
    return header.startswith(MAGIC)


def encrypt(ring: KeyRing, pieces: Iterable[bytes], name: str) -> Iterator[bytes | memoryview]:
    """The stored form of an object; each piece must be used before the next is requested."""
    header, cipher = new_header(ring, OBJECT, name)
    yield header
    sealer = _Sealer(cipher)
    kept = b""
    for piece in pieces:
        view = memoryview(piece)
        # The last chunk is marked as such, so one is always kept back.
        if len(kept) < CHUNK_BYTES:
            taken = CHUNK_BYTES - len(kept)
            kept += view[:taken]
            view = view[taken:]
        if not view:
            continue
        whole = (len(view) - 1) // CHUNK_BYTES
        yield from sealer.seal([kept, *(view[at * CHUNK_BYTES : (at + 1) * CHUNK_BYTES] for at in range(whole))])
        kept = bytes(view[whole * CHUNK_BYTES :])
    yield from sealer.seal([kept], last=True)


class _Sealer:
    """Encrypts chunk after chunk into one buffer: allocating memory for each would cost more than the cipher."""

    def __init__(self, cipher: AESGCM) -> None:
        self._cipher = cipher
        self._buffer = memoryview(b"")
        self._number = 0

    def seal(self, chunks: Sequence[bytes | memoryview], last: bool = False) -> Iterator[memoryview]:
        self._buffer = _with_room(self._buffer, min(len(chunks), _AT_ONCE))
        for first in range(0, len(chunks), _AT_ONCE):
            end = 0
            for chunk in chunks[first : first + _AT_ONCE]:
                sealed = self._buffer[end : end + len(chunk) + TAG_BYTES]
                self._cipher.encrypt_into(_nonce(self._number, last), chunk, None, sealed)
                self._number += 1
                end += len(sealed)
            yield self._buffer[:end]


def _with_room(buffer: memoryview, chunks: int) -> memoryview:
    """A buffer for so many sealed chunks: small objects do not pay for what large ones need."""
    return buffer if len(buffer) >= chunks * _SEALED else memoryview(bytearray(chunks * _SEALED))


def plain_size(stored: int) -> int:
    """The length of an object whose stored form has this length."""
    body = stored - HEADER_BYTES
    return body - TAG_BYTES * -(-body // _SEALED)


def open_object(ring: KeyRing | None, stored: Any, stored_size: int, name: str) -> io.BufferedReader:
    """An encrypted object as a seekable file."""
    try:
        cipher = open_header(ring, stored.read(HEADER_BYTES), name)
        reader = _Reader(cipher, stored, stored_size - HEADER_BYTES, name)
    except BaseException:
        stored.close()
        raise
    # Larger reads bypass this buffer, straight into the caller's memory.
    return io.BufferedReader(reader, CHUNK_BYTES)


class PlainText(io.RawIOBase):
    """The plain text of encrypted bytes, readable from any offset; subclasses do the reading."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, {0: 0, 1: self._at, 2: self._size}[whence] + offset)
        return self._at

    def readall(self) -> bytes:
        """At once: in the small default steps, each chunk would be decrypted several times."""
        found = memoryview(bytearray(max(0, self._size - self._at)))
        filled = 0
        while filled < len(found) and (count := self.readinto(found[filled:])):
            filled += count
        return bytes(found[:filled])


class _Reader(PlainText):
    """Decrypts the requested chunks; for a large read, one half in a background thread."""

    def __init__(self, cipher: AESGCM, stored: Any, body: int, name: str) -> None:
        self._count = max(1, -(-body // _SEALED))
        super().__init__(body - TAG_BYTES * self._count)
        self._cipher = cipher
        self._stored = stored
        self._descriptor = _descriptor(stored)
        self._name = name
        self._background = BackgroundThread()
        self._buffer = memoryview(b"")
        # For less, starting and waking a thread takes longer than decrypting its half.
        shared = self._size >= _LARGE_BYTES and self._descriptor is not None
        self._at_once = _SHARED_AT_ONCE if shared else _AT_ONCE
        if self._size < 0:
            raise Damaged(f"{name} was cut off", "Take it from a backup.")
        # Checked first: a reader of the beginning should also learn that the end is missing.
        self._part(self._count - 1)

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._at)]
        if not view:
            return 0
        first, skip = divmod(self._at, CHUNK_BYTES)
        if skip or len(view) < CHUNK_BYTES:
            part = self._part(first)[skip : skip + len(view)]
            view[: len(part)] = part
            self._at += len(part)
            return len(part)
        whole = min(len(view) // CHUNK_BYTES, self._at_once)
        self._buffer = _with_room(self._buffer, whole)
        self._whole(first, whole, view)
        self._at += whole * CHUNK_BYTES
        return whole * CHUNK_BYTES

    def close(self) -> None:
        if not self.closed:
            self._background.close()
            self._stored.close()
        super().close()

    def _whole(self, first: int, count: int, view: memoryview) -> None:
        if count < _SHARED_AT_ONCE:
            self._decrypt(first, 0, count, view)
            return
        half = count // 2
        self._background.start(self._decrypt, first, half, count, view)
        try:
            self._decrypt(first, 0, half, view)
        finally:
            # The thread writes to the caller's memory.
            self._background.wait()

    def _part(self, number: int) -> memoryview:
        self._buffer = _with_room(self._buffer, 1)
        plain = memoryview(bytearray(min(CHUNK_BYTES, self._size - number * CHUNK_BYTES)))
        self._decrypt(number, 0, 1, plain)
        return plain

    def _decrypt(self, first: int, start: int, end: int, into: memoryview) -> None:
        """Read and decrypt the chunks from `start` to `end`, counted from the chunk `first`."""
        sealed = self._read(HEADER_BYTES + (first + start) * _SEALED, self._buffer[start * _SEALED : end * _SEALED])
        try:
            for at in range(start, end):
                chunk = sealed[(at - start) * _SEALED : (at - start + 1) * _SEALED]
                target = into[at * CHUNK_BYTES : at * CHUNK_BYTES + len(chunk) - TAG_BYTES]
                nonce = _nonce(first + at, first + at == self._count - 1)
                self._cipher.decrypt_into(nonce, chunk, None, target)
        except (InvalidTag, ValueError):
            raise Damaged(f"{self._name} is damaged, cut off or was changed", "Take it from a backup.") from None

    def _read(self, offset: int, buffer: memoryview) -> memoryview:
        if self._descriptor is not None:
            return buffer[: os.preadv(self._descriptor, [buffer], offset)]
        self._stored.seek(offset)
        return buffer[: self._stored.readinto(buffer)]


def _descriptor(stored: Any) -> int | None:
    """A descriptor through which two threads can read a file at once; None for remote files."""
    try:
        return int(stored.fileno())
    except (AttributeError, io.UnsupportedOperation):
        return None


def _nonce(number: int, last: bool) -> bytes:
    return struct.pack(">xxxQB", number, last)
