"""The attributes of a file or folder as in RFC 7530, by their numbers."""

from __future__ import annotations

import os
from collections.abc import Callable

from muster.fileserver.nfs.tree import Node, Tree
from muster.fileserver.nfs.xdr import bitmap, opaque, u32, u64

READ_BYTES = 1 << 20
LEASE_S = 90
_FOLDER, _FILE = 2, 1
_TOP_ID = (1 << 63) - 1
_MOST_BYTES = (1 << 63) - 1

Told = Callable[[Tree, Node], bytes]


def _when(ns: int) -> bytes:
    return u64(ns // 1_000_000_000) + u32(ns % 1_000_000_000)


def _id(node: Node) -> int:
    return _TOP_ID if node.path is None else node.status.st_ino


def _always(value: bytes) -> Told:
    return lambda tree, node: value


def _of_disk(value: Callable[[os.statvfs_result], int]) -> Told:
    return lambda tree, node: u64(value(tree.room()))


_YES, _NO, _NOBODY = u32(1), u32(0), opaque(b"65534")

_TOLD: dict[int, Told] = {
    0: lambda tree, node: bitmap(_SUPPORTED),
    1: lambda tree, node: u32(_FOLDER if node.is_folder else _FILE),
    2: _always(u32(0)),  # handles are persistent
    3: lambda tree, node: u64(max(node.status.st_mtime_ns, node.status.st_ctime_ns)),
    4: lambda tree, node: u64(node.status.st_size),
    5: _always(_NO),  # links
    6: _always(_NO),  # symbolic links
    7: _always(_NO),  # named attributes
    8: _always(u64(1) + u64(1)),
    9: _always(_YES),  # one handle for each file
    10: _always(u32(LEASE_S)),
    11: _always(u32(0)),
    13: _always(u32(0)),  # access lists
    15: _always(_NO),  # times cannot be set
    16: _always(_NO),
    17: _always(_YES),  # letters keep their case
    18: _always(_YES),
    19: lambda tree, node: opaque(tree.handle(node)),
    20: lambda tree, node: u64(_id(node)),
    21: _of_disk(lambda disk: disk.f_favail),
    22: _of_disk(lambda disk: disk.f_ffree),
    23: _of_disk(lambda disk: disk.f_files),
    26: _always(_YES),
    27: _always(u64(_MOST_BYTES)),
    28: _always(u32(1)),
    29: _always(u32(255)),
    30: _always(u64(READ_BYTES)),
    31: _always(u64(READ_BYTES)),
    33: lambda tree, node: u32(node.status.st_mode & 0o555),
    34: _always(_YES),  # long names are refused, not cut
    35: lambda tree, node: u32(node.status.st_nlink),
    36: _always(_NOBODY),
    37: _always(_NOBODY),
    41: _always(u32(0) + u32(0)),
    42: _of_disk(lambda disk: disk.f_bavail * disk.f_frsize),
    43: _of_disk(lambda disk: disk.f_bfree * disk.f_frsize),
    44: _of_disk(lambda disk: disk.f_blocks * disk.f_frsize),
    45: lambda tree, node: u64(node.status.st_blocks * 512),
    47: lambda tree, node: _when(node.status.st_atime_ns),
    51: _always(u64(0) + u32(1)),
    52: lambda tree, node: _when(node.status.st_ctime_ns),
    53: lambda tree, node: _when(node.status.st_mtime_ns),
    55: lambda tree, node: u64(_id(node)),
}
_SUPPORTED: int = sum(1 << number for number in _TOLD)


def attributes(tree: Tree, node: Node, asked: int) -> bytes:
    """The requested attributes that are supported, in the order of their numbers."""
    told = asked & _SUPPORTED
    values = b"".join(told_of(tree, node) for number, told_of in _TOLD.items() if told >> number & 1)
    return bitmap(told) + opaque(values)
