"""The work of a batch scoring: files or tables, cut into mini-batches whose numbers are the same in every attempt."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from muster.scoring.batch import tables
from muster.scoring.frames import Message, number, texts

FILES = "files"
FORMATS = (FILES, *tables.FORMATS)
APPEND, PER_FILE, SUMMARY = "append_row", "per_file", "summary_only"
ACTIONS = (APPEND, PER_FILE, SUMMARY)


@dataclass(frozen=True)
class Settings:
    """The settings of one batch scoring; passed as the command's only argument."""

    script: str = ""
    arguments: List[str] = field(default_factory=list)
    format: str = ""
    """One of FORMATS; empty: by the names of the files."""
    mini_batch_size: int = 0
    """Files, or rows of a table; 0: 10 files or 1,000 rows."""
    output_action: str = APPEND
    output_file: str = "predictions.csv"
    max_retries: int = 2
    timeout_s: float = 60.0
    error_threshold: int = -1
    """How many items may fail; -1: any number of them."""
    mini_batch_error_threshold: int = -1

    @staticmethod
    def parse(text: str) -> Settings:
        return Settings(**json.loads(text))

    def dump(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Batch:
    """One mini-batch: some files, or a piece of one table."""

    number: int
    names: Tuple[str, ...]
    """Paths below the input."""
    items: int
    """The number of files or rows."""
    begin: int = 0
    """For a table: where the piece begins, in bytes, or in rows for Parquet."""
    end: int = 0

    def message(self) -> Message:
        return [self.number, list(self.names), self.items, self.begin, self.end]

    @staticmethod
    def of(message: Message) -> Batch:
        first, names, items, begin, end = message
        return Batch(number(first), tuple(texts(names)), number(items), number(begin), number(end))


def input_files(root: str) -> Dict[str, int]:
    """The files below a folder by name, in order, with their sizes, without hidden ones. A file is its own name."""
    path = Path(root)
    if path.is_file():
        return {path.name: path.stat().st_size}
    found = {}
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in names:
            if not name.startswith((".", "_")):
                file = Path(folder, name)
                found[file.relative_to(root).as_posix()] = file.stat().st_size
    return dict(sorted(found.items()))


def path_of(root: str, name: str) -> str:
    """The path of an input file."""
    return root if Path(root).is_file() else str(Path(root, name))


def format_of(names: List[str], wanted: str) -> str:
    """The format of the input: the one asked for, or the one that the file names indicate."""
    if wanted:
        return wanted
    kinds = {tables.format_of(name) for name in names}
    return kinds.pop() or FILES if len(kinds) == 1 else FILES


def plan_digest(files: Dict[str, int], form: str, size: int) -> str:
    """Shows whether results belong to the same work: the same files, cut in the same way."""
    told = json.dumps([form, size, list(files.items())])
    return hashlib.sha256(told.encode()).hexdigest()


def size_of(settings: Settings, form: str) -> int:
    return settings.mini_batch_size or (10 if form == FILES else 1000)


def batches(root: str, files: Dict[str, int], form: str, size: int) -> Iterator[Batch]:
    """Every mini-batch, in the order of the input."""
    names = list(files)
    if form == FILES:
        for count, begin in enumerate(range(0, len(names), size)):
            chosen = tuple(names[begin : begin + size])
            yield Batch(count, chosen, len(chosen))
        return
    count = 0
    for name in names:
        for begin, end, rows in tables.pieces(path_of(root, name), form, size):
            yield Batch(count, (name,), rows, begin, end)
            count += 1
