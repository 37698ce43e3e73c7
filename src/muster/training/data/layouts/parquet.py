"""Parquet files: every row is a sample, its columns are the parts. Needs pyarrow.

A row group is read at once and kept while its rows are handed out, so it counts as a shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from muster.errors import MissingExtra
from muster.training.data.layouts.base import Layout, Sample


class ParquetRows(Layout):
    name = "parquet"
    whole_shards = True

    def __init__(self, names: Sequence[str], open_file: Callable[[str], BinaryIO]) -> None:
        self._groups: list[tuple[str, int]] = []
        self.counts: list[int] = []
        for name in names:
            with open_file(name) as file:
                about = _parquet().read_metadata(file)
            for group in range(about.num_row_groups):
                self._groups.append((name, group))
                self.counts.append(about.row_group(group).num_rows)

    def files(self, shard: int) -> tuple[str, ...]:
        return (self._groups[shard][0],)

    def open(self, shard: int, paths: Sequence[Path]) -> RowReader:
        return RowReader(paths[0], *self._groups[shard])


class RowReader:
    def __init__(self, path: Path, name: str, group: int) -> None:
        self._key = f"{name}/{group}"
        with _parquet().ParquetFile(path) as file:
            self._table = file.read_row_group(group)

    def read(self, number: int) -> Sample:
        return {"__key__": f"{self._key}/{number}", **self._table.slice(number, 1).to_pylist()[0]}

    def will_need(self, numbers: Sequence[int]) -> None:
        """Nothing to read ahead: the whole row group is in memory."""

    def close(self) -> None:
        self._table = None


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("reading Parquet files needs pyarrow", "Install it: pip install pyarrow") from error
    return pyarrow.parquet
