"""The operations of NFS 4.0 (RFC 7530) for reading. No state is kept, since nothing can be changed or locked here.

So a client that continues with the state of an earlier process is served as before, and none has to be remembered.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Callable
from itertools import count
from operator import itemgetter

from muster.fileserver.nfs.attributes import READ_BYTES, attributes
from muster.fileserver.nfs.tree import Node, Refused, Status, Tree
from muster.fileserver.nfs.xdr import Garbled, Reader, bitmap, opaque, u32, u64

_OPERATIONS = 64
_HANDLE_BYTES, _NAME_BYTES, _TEXT_BYTES = 128, 4096, 1024
_STATE_BYTES, _VERIFIER_BYTES = 16, 8
_READ, _LOOKUP, _EXECUTE = 0x01, 0x02, 0x20
_WRITES = 2
_TO_NEW_NAME = 1
_POSIX_LOCKS = 4
_SETATTR, _ILLEGAL = 34, 10044
_LEAST_LISTING, _MOST_LISTING = 256, 1 << 20
_ENTRY_BYTES = 24
_BOOT = secrets.randbits(32)
_clients = count(1)


class Compound:
    """One request: operations one after the other, up to the first that fails."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._current: Node | None = None
        self._saved: Node | None = None
        self._answered = 0

    def answered(self, call: Reader) -> bytes:
        tag, minor = call.opaque(_TEXT_BYTES), call.u32()
        if minor:
            return u32(Status.MINOR_VERS_MISMATCH) + opaque(tag) + u32(0)
        wanted = call.u32()
        status, results = 0, []
        for done in range(wanted):
            status, result = self._one(call, done)
            results.append(result)
            if status:
                break
        return u32(status) + opaque(tag) + u32(len(results)) + b"".join(results)

    def _one(self, call: Reader, done: int) -> tuple[int, bytes]:
        number = call.u32()
        operation = _TABLE.get(number)
        if operation is None:
            known = 3 <= number <= 39
            status = Status.NOTSUPP if known else Status.OP_ILLEGAL
            return status, u32(number if known else _ILLEGAL) + u32(status)
        try:
            if done >= _OPERATIONS:
                raise Refused(Status.RESOURCE)
            return 0, u32(number) + u32(0) + operation(self, call)
        except Refused as error:
            status = error.status
        except Garbled:
            status = Status.BADXDR
        return status, u32(number) + u32(status) + (bitmap(0) if number == _SETATTR else b"")

    @property
    def _here(self) -> Node:
        if self._current is None:
            raise Refused(Status.NOFILEHANDLE)
        return self._current

    # Navigation

    def _putrootfh(self, call: Reader) -> bytes:
        self._current = self._tree.top()
        return b""

    def _putfh(self, call: Reader) -> bytes:
        self._current = self._tree.node(call.opaque(_HANDLE_BYTES))
        return b""

    def _getfh(self, call: Reader) -> bytes:
        return opaque(self._tree.handle(self._here))

    def _savefh(self, call: Reader) -> bytes:
        self._saved = self._here
        return b""

    def _restorefh(self, call: Reader) -> bytes:
        if self._saved is None:
            raise Refused(Status.NOFILEHANDLE)
        self._current = self._saved
        return b""

    def _lookup(self, call: Reader) -> bytes:
        self._current = self._tree.lookup(self._here, call.opaque(_NAME_BYTES))
        return b""

    def _lookupp(self, call: Reader) -> bytes:
        self._current = self._tree.above(self._here)
        return b""

    def _secinfo(self, call: Reader) -> bytes:
        self._tree.lookup(self._here, call.opaque(_NAME_BYTES))
        self._current = None
        return u32(2) + u32(1) + u32(0)

    # Attributes

    def _getattr(self, call: Reader) -> bytes:
        return attributes(self._tree, self._here, call.bitmap())

    def _access(self, call: Reader) -> bytes:
        mode = self._here.status.st_mode
        found = (_READ if mode & 0o004 else 0) | (_LOOKUP | _EXECUTE if mode & 0o001 else 0)
        asked = call.u32()
        return u32(asked & 0x3F) + u32(asked & (found if self._here.is_folder else found & ~_LOOKUP))

    def _verify(self, call: Reader) -> bytes:
        if not self._is_as_said(call):
            raise Refused(Status.NOT_SAME)
        return b""

    def _nverify(self, call: Reader) -> bytes:
        if self._is_as_said(call):
            raise Refused(Status.SAME)
        return b""

    def _is_as_said(self, call: Reader) -> bool:
        asked = call.bitmap()
        said = bitmap(asked) + opaque(call.opaque(1 << 16))
        return attributes(self._tree, self._here, asked) == said

    # Contents

    def _readdir(self, call: Reader) -> bytes:
        cookie, _, _, most, asked = call.u64(), call.fixed(_VERIFIER_BYTES), call.u32(), call.u32(), call.bitmap()
        room = min(most, _MOST_LISTING) - _LEAST_LISTING
        self._spend(min(most, _MOST_LISTING))
        entries, is_whole = [], True
        listed = self._tree.listing(self._here)
        # A folder of a million files takes hundreds of calls.
        for at, name in listed[bisect_right(listed, cookie, key=itemgetter(0)) :]:
            try:
                node = self._tree.lookup(self._here, name)
            except Refused:
                continue  # it was removed meanwhile
            entry = u32(1) + u64(at) + opaque(name) + attributes(self._tree, node, asked)
            room -= len(entry)
            if room < 0:
                is_whole = False
                break
            entries.append(entry)
        if not entries and not is_whole:
            raise Refused(Status.TOOSMALL)
        return bytes(_VERIFIER_BYTES) + b"".join(entries) + u32(0) + u32(is_whole)

    def _read_file(self, call: Reader) -> bytes:
        call.fixed(_STATE_BYTES)
        offset, wanted = call.u64(), min(call.u32(), READ_BYTES)
        self._spend(wanted)
        data, at_end = self._tree.read(self._here, offset, wanted)
        return u32(at_end) + opaque(data)

    def _spend(self, count: int) -> None:
        """Limit the answer: a small request must not cause one of any size."""
        self._answered += count
        if self._answered > 2 * READ_BYTES:
            raise Refused(Status.RESOURCE)

    def _readlink(self, call: Reader) -> bytes:
        raise Refused(Status.INVAL)

    # Opening and closing

    def _open(self, call: Reader) -> bytes:
        call.u32()
        access = call.u32()
        call.u32(), call.u64(), call.opaque(_TEXT_BYTES)
        if access & _WRITES or call.u32() == _TO_NEW_NAME:
            raise Refused(Status.ROFS)
        node = self._claimed(call)
        if node.is_folder:
            raise Refused(Status.ISDIR)
        self._current = node
        changed = u64(node.status.st_mtime_ns)
        return _state() + u32(1) + changed + changed + u32(_POSIX_LOCKS) + bitmap(0) + u32(0)

    def _claimed(self, call: Reader) -> Node:
        by_name, again = 0, 1
        claim = call.u32()
        if claim == by_name:
            return self._tree.lookup(self._here, call.opaque(_NAME_BYTES))
        if claim == again:
            call.u32()
            return self._here
        raise Refused(Status.NOTSUPP)

    def _confirm(self, call: Reader) -> bytes:
        state = call.fixed(_STATE_BYTES)
        call.u32()
        return _next(state)

    def _downgrade(self, call: Reader) -> bytes:
        state = call.fixed(_STATE_BYTES)
        call.u32(), call.u32(), call.u32()
        return _next(state)

    def _close(self, call: Reader) -> bytes:
        call.u32()
        return _next(call.fixed(_STATE_BYTES))

    # Clients

    def _setclientid(self, call: Reader) -> bytes:
        call.fixed(_VERIFIER_BYTES), call.opaque(_TEXT_BYTES)
        call.u32(), call.opaque(_TEXT_BYTES), call.opaque(_TEXT_BYTES), call.u32()
        return u64(_BOOT << 32 | next(_clients) & 0xFFFFFFFF) + u64(_BOOT)

    def _setclientid_confirm(self, call: Reader) -> bytes:
        call.u64(), call.fixed(_VERIFIER_BYTES)
        return b""

    def _renew(self, call: Reader) -> bytes:
        call.u64()
        return b""

    def _release(self, call: Reader) -> bytes:
        call.u64(), call.opaque(_TEXT_BYTES)
        return b""

    def _refuse(self, call: Reader) -> bytes:
        """For every operation that would change something."""
        raise Refused(Status.ROFS)


def _state() -> bytes:
    """A state ID for an opened file: it is never looked up."""
    return u32(1) + secrets.token_bytes(12)


def _next(state: bytes) -> bytes:
    return u32((int.from_bytes(state[:4], "big") + 1) & 0xFFFFFFFF) + state[4:]


_TABLE: dict[int, Callable[[Compound, Reader], bytes]] = {
    3: Compound._access,
    4: Compound._close,
    5: Compound._refuse,  # COMMIT
    6: Compound._refuse,  # CREATE
    9: Compound._getattr,
    10: Compound._getfh,
    11: Compound._refuse,  # LINK
    15: Compound._lookup,
    16: Compound._lookupp,
    17: Compound._nverify,
    18: Compound._open,
    20: Compound._confirm,
    21: Compound._downgrade,
    22: Compound._putfh,
    23: Compound._putrootfh,  # PUTPUBFH
    24: Compound._putrootfh,
    25: Compound._read_file,
    26: Compound._readdir,
    27: Compound._readlink,
    28: Compound._refuse,  # REMOVE
    29: Compound._refuse,  # RENAME
    30: Compound._renew,
    31: Compound._restorefh,
    32: Compound._savefh,
    33: Compound._secinfo,
    _SETATTR: Compound._refuse,
    35: Compound._setclientid,
    36: Compound._setclientid_confirm,
    37: Compound._verify,
    38: Compound._refuse,  # WRITE
    39: Compound._release,
}
