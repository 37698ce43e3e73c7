"""Tables in pieces: CSV and JSON lines by bytes, Parquet by rows; a piece is read alone, as a DataFrame or as rows."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import json
from typing import Any, Iterator, Tuple

CSV, JSONL, PARQUET = "csv", "jsonl", "parquet"
FORMATS = (CSV, JSONL, PARQUET)
_SUFFIXES = {"csv": CSV, "jsonl": JSONL, "ndjson": JSONL, "parquet": PARQUET, "pq": PARQUET}
_QUOTE = b'"'

Piece = Tuple[int, int, int]
"""Its begin and end, and its number of rows."""


class BadTable(ValueError):
    """A table that cannot be read, with the reason."""


def format_of(name: str) -> str:
    """The format that a file's name indicates; empty if it indicates none."""
    return _SUFFIXES.get(name.rpartition(".")[2].lower(), "") if "." in name else ""


def pieces(path: str, form: str, rows: int) -> Iterator[Piece]:
    """The pieces of one table, each with this many rows."""
    if form == PARQUET:
        total = _parquet(path).metadata.num_rows
        for begin in range(0, total, rows):
            yield begin, min(begin + rows, total), min(rows, total - begin)
        return
    with open(path, "rb") as file:
        place = begin = len(file.readline()) if form == CSV else 0
        if form == CSV and place == 0:
            return
        count, quoted = 0, False
        for line in file:
            place += len(line)
            if form == CSV:
                # A line break ends a row only outside of quotes.
                quoted ^= line.count(_QUOTE) % 2 == 1
            if quoted or not line.strip():
                continue
            count += 1
            if count == rows:
                yield begin, place, count
                begin, count = place, 0
        if quoted:
            raise BadTable("{}: a quote is not closed".format(path))
        if count:
            yield begin, place, count


def read(path: str, form: str, begin: int, end: int) -> Any:
    """One piece: a DataFrame where pandas is installed, otherwise a list of mappings."""
    pandas = importlib.import_module("pandas") if importlib.util.find_spec("pandas") else None
    if form == PARQUET:
        return _read_parquet(path, begin, end, pandas)
    with open(path, "rb") as file:
        header = file.readline() if form == CSV else b""
        file.seek(begin)
        content = file.read(end - begin)
    if pandas is not None:
        if form == CSV:
            return pandas.read_csv(io.BytesIO(header + content))
        return pandas.read_json(io.BytesIO(content), lines=True)
    text = (header + content).decode("utf-8-sig")
    if form == CSV:
        return list(csv.DictReader(io.StringIO(text, newline="")))
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _read_parquet(path: str, begin: int, end: int, pandas: Any) -> Any:
    """Reads only the row groups that contain the rows."""
    file = _parquet(path)
    first, groups, start = 0, [], None
    for index in range(file.metadata.num_row_groups):
        last = first + file.metadata.row_group(index).num_rows
        if last > begin and first < end:
            groups.append(index)
            start = first if start is None else start
        first = last
    table = file.read_row_groups(groups).slice(begin - (start or 0), end - begin)
    return table.to_pandas() if pandas is not None else table.to_pylist()


def _parquet(path: str) -> Any:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise BadTable("{}: reading Parquet needs the package pyarrow in the job's environment".format(path)) from None
    return parquet.ParquetFile(path)
