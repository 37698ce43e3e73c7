"""A rank's part of a sharded checkpoint, written with so little Python that it hardly slows the training."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import warnings
from collections import deque
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import FileSystemWriter, SavePlan, SavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

Piece = bytes | memoryview

_INDEX = ".metadata"
_PLAIN = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool}
_PLAIN |= {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
"""Types that can be read in the older format of `torch.save`; newer types cannot."""
_AT_ONCE = 256
"""Buffers in one system call, which takes up to 1,024."""


class Shards:
    """Saves tensors in the format of torch.distributed.checkpoint, so that its readers can load them.

    While the tensors stay where they are, every checkpoint has the layout of the first: only the first is planned by
    PyTorch, and the others write the same pieces of memory again.
    """

    def __init__(self, rank: int, size: int, group: dist.ProcessGroup | None) -> None:
        self._rank, self._size, self._group = rank, size, group
        self._planned_for: Mapping[str, Tensor] | None = None
        self._files: dict[str, list[Piece]] = {}

    def repeats(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether these are the tensors of the last save, in the same memory."""
        return tensors is self._planned_for

    def write(self, folder: Path, tensors: Mapping[str, Tensor], again: bool) -> dict[str, str]:
        """Write and sync this rank's files; returns their hashes. `again` must be the same on every rank."""
        if again:
            return {name: write_pieces(folder / name, pieces) for name, pieces in self._files.items()}
        self._planned_for = None
        writer = _Writer(folder)
        silence_single_process_warning()
        dcp.save(dict(tensors), storage_writer=writer, process_group=self._group, no_dist=self._size == 1)
        if writer.repeatable:
            self._planned_for, self._files = tensors, {writer.name: writer.pieces}
            if self._rank == 0:
                self._files[_INDEX] = [(folder / _INDEX).read_bytes()]
        return writer.sha256


class _Writer(FileSystemWriter):
    """Writes everything of a rank into one file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sync_files=True)
        self._folder = folder
        self.name = ""
        self.pieces: list[Piece] = []
        self.repeatable = True
        self.sha256: dict[str, str] = {}

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self.name = f"{plan.storage_data.prefix}0.distcp"
        results, end = [], 0
        for item in plan.items:
            own = self._pieces(planner.resolve_data(item))
            begin, end = end, end + sum(map(len, own))
            location: Any = _StorageInfo(self.name, begin, end - begin)
            results.append(WriteResult(index=item.index, size_in_bytes=end - begin, storage_data=location))
            self.pieces += own
        self.sha256[self.name] = write_pieces(self._folder / self.name, self.pieces)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def _pieces(self, data: Tensor | io.BytesIO) -> list[Piece]:
        if isinstance(data, Tensor):
            # A view of a larger storage would be saved with the whole storage.
            if data.dtype in _PLAIN and data.untyped_storage().nbytes() == data.nbytes:
                return [_head_of(data.detach()), _memory_of(data)]
            archive = io.BytesIO()
            torch.save(data.detach().clone(), archive)
            data = archive
        self.repeatable = False
        return [data.getvalue()]


def write_pieces(path: Path, pieces: list[Piece]) -> str:
    """Write and sync a file; returns its hash. Python only passes the pieces on, so other threads run meanwhile."""
    sha256 = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        left = deque(pieces)
        while left:
            taken = os.writev(file.fileno(), list(islice(left, _AT_ONCE)))
            while left and taken >= len(left[0]):
                piece = left.popleft()
                taken -= len(piece)
                sha256.update(piece)
            if taken:
                # Part of a piece was written; a call writes 2 GiB at most.
                sha256.update(memoryview(left[0])[:taken])
                left[0] = memoryview(left[0])[taken:]
        os.fsync(file.fileno())
    return sha256.hexdigest()


class _Head:
    """Collects what `torch.save` writes before the bytes of a tensor."""

    LARGE = 4096

    def __init__(self) -> None:
        self.content = bytearray()
        self._in_body = False

    def write(self, content: Any) -> int:
        self._in_body = self._in_body or len(content) >= self.LARGE
        if not self._in_body:
            self.content += content
        return len(content)

    def flush(self) -> None:
        return


def _head_of(tensor: Tensor) -> bytes:
    """The header of the older format, which plain bytes follow: a zip archive per tensor takes far more Python."""
    head = _Head()
    torch.save(tensor, head, _use_new_zipfile_serialization=False)
    body = tensor.nbytes if tensor.nbytes < head.LARGE else 0
    return bytes(head.content[: len(head.content) - body])


def _memory_of(tensor: Tensor) -> memoryview:
    """The tensor's memory, not a copy, so later changes are seen; the tensor must outlive it."""
    if not tensor.nbytes:
        return memoryview(b"")
    return memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.untyped_storage().data_ptr())).cast("B")


def silence_single_process_warning() -> None:
    """Saving with a single process is intended, so there is nothing to warn about."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")
