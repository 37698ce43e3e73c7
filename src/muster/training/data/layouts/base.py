"""What every layout offers: how many samples each shard has, and a reader of one."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Value = bytes | str | int | float | bool | list[Any] | np.generic | NDArray[Any] | None
Sample = dict[str, Value]
"""A sample's parts by name, as stored; `__key__` is the name of the sample."""


class Reader(Protocol):
    """An open shard."""

    def read(self, number: int) -> Sample: ...
    def will_need(self, numbers: Sequence[int]) -> None:
        """Announce samples that are read soon, in rising order."""

    def close(self) -> None: ...


class Layout(ABC):
    """A data set's shards; it is sent to worker processes, so it holds no open file."""

    name: str
    whole_shards = False
    """Whether a shard is read as a whole, since its samples cannot be read one by one."""
    counts: Sequence[int]
    """The samples of each shard."""

    @abstractmethod
    def files(self, shard: int) -> tuple[str, ...]:
        """The names of the files that a shard needs."""

    @abstractmethod
    def open(self, shard: int, paths: Sequence[Path]) -> Reader:
        """Open a shard whose files are at these paths on this machine."""

    def sha256(self, name: str) -> tuple[int, str] | None:
        """The size and hash that a file must have, where they are known."""
        return None


class OpenFile:
    """A file that is read by offset, with hints to the kernel about what is read next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) < size:
            # Reads return less above 2 GiB, and on some network file systems.
            data = self._rest(data, offset, size)
        return data

    def _rest(self, data: bytes, offset: int, size: int) -> bytes:
        parts, have = [data], len(data)
        while have < size:
            part = os.pread(self._descriptor, size - have, offset + have)
            if not part:
                raise EOFError(f"{self.path} ends after {offset + have} bytes, inside a sample: is it cut off?")
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def will_need(self, stretches: Iterable[tuple[int, int]]) -> None:
        if hasattr(os, "posix_fadvise"):
            for begin, end in stretches:
                os.posix_fadvise(self._descriptor, begin, end - begin, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Rising numbers as runs of neighbours, each with its first and its last."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
