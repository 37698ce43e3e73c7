"""`muster data pack` and `muster data index`: files into tar shards, and an index for shards that have none."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

from muster.cli.console import is_terminal, say
from muster.cli.options import Json, argument, option, print_json, switch
from muster.cli.text import counted, duration, size
from muster.defaults import IMAGES_PER_SHARD
from muster.errors import NotFound
from muster.shards.index import INDEX, ShardIndex
from muster.shards.pack import Request, index_folder
from muster.shards.pack import pack as pack_folder

_DRAW_EVERY_S = 0.1
_LINE_EVERY_S = 30.0


def pack(
    folder: Annotated[Path, argument("FOLDER", "The files; those of one name are one sample (1.jpg and 1.json).")],
    shards: Annotated[Path, argument("SHARDS", "The folder that the shards go to.")],
    per_shard: Annotated[int, option("N", "Samples in a shard.", min=1)] = IMAGES_PER_SHARD,
    seed: Annotated[int, option("N", "Seed of the shuffle.")] = 0,
    no_shuffle: Annotated[bool, switch("Keep the order of the names.", "--no-shuffle")] = False,
    no_labels: Annotated[bool, switch("Add no labels from the names of folders.", "--no-labels")] = False,
    workers: Annotated[int | None, option("N", "Shards made at once (default: one per core).", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Pack a folder of files into tar shards of mixed samples, with hashes and an index, for `muster.training.data`.

    Where every sample lies in a folder, the number of that folder becomes its label (the part `cls`). A shard
    appears only when it is complete; after an interruption the same command continues, and the same files give the
    same bytes.

    \b
    Examples:
      muster data pack ./images ./packed
      muster data pack ./images ./mixed --per-shard 100 --seed 7 --workers 2
    """
    progress = Progress("packing")
    request = Request(
        folder.expanduser(),
        shards.expanduser(),
        per_shard,
        None if no_shuffle else seed,
        not no_labels,
        workers or os.cpu_count() or 1,
    )
    try:
        made = pack_folder(request, progress.expect, progress.add)
    finally:
        progress.end()
    _show(made, shards, as_json)


def index(
    shards: Annotated[Path, argument("SHARDS", "A folder with tar shards in WebDataset's layout.")],
    workers: Annotated[int | None, option("N", "Shards read at once (default: one per core).", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Write the index of tar shards that have none, so that they can be read from elsewhere and open at once.

    \b
    Examples:
      muster data index shards/train
    """
    folder = shards.expanduser()
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}.", "Give the folder that the shards lie in.")
    progress = Progress("reading")
    try:
        made = index_folder(folder, progress.add, workers or os.cpu_count() or 1)
    finally:
        progress.end()
    _show(made, shards, as_json)


def _show(made: ShardIndex, folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    classes = f", {counted(len(made.classes), 'class', 'es')}" if made.classes else ""
    print(f"{counted(made.samples, 'sample')} in {counted(len(made.shards), 'shard')}, {size(made.bytes)}{classes}")
    print(f"{folder / INDEX} has the hash of every shard")


class Progress:
    """Progress: a line that is redrawn, or a line from time to time where that is impossible."""

    def __init__(self, verb: str) -> None:
        self._verb, self._total, self._samples, self._bytes = verb, 0, 0, 0
        self._began = self._shown = time.monotonic()
        self._terminal = is_terminal(sys.stderr)

    def expect(self, total: int) -> None:
        self._total = total
        say(f"{self._verb} {counted(total, 'sample')}")

    def add(self, samples: int, count: int) -> None:
        self._samples += samples
        self._bytes += count
        now = time.monotonic()
        if now - self._shown < (_DRAW_EVERY_S if self._terminal else _LINE_EVERY_S):
            return
        self._shown = now
        passed = now - self._began
        of = f" of {self._total:,}" if self._total else ""
        left = duration(passed * (self._total - self._samples) / self._samples) if self._total else ""
        line = f"{self._samples:,}{of} samples, {size(self._bytes / passed)}/s{f', about {left} left' if left else ''}"
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        else:
            say(f"{self._verb}: {line}")

    def end(self) -> None:
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
