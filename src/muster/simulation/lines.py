"""A trace file as columns and rows, whatever the separator and whichever program wrote it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

PLAIN = ("start", "length", "gpus")
"""The columns of a file without a header that contains only numbers."""
_SEPARATORS = "|\t;,"
_FIGURES = re.compile(r"[\d.\s,;|-]+")
_RULED = re.compile(r"[-\s]*-{4}[-\s]*")

Line = tuple[int, list[str]]
"""Its line number in the file, and its fields."""


def decoded(data: bytes) -> str:
    """Text as spreadsheets and shells of any system write it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def rows(text: str) -> tuple[list[str], Iterator[Line]]:
    """The column names as written, and the lines below them, without empty lines and comments."""
    stream = io.StringIO(text.removeprefix("\ufeff"), newline=None)
    numbered = enumerate(stream, 1)
    at, first = next(((at, line) for at, line in numbered if line.strip() and not line.startswith("#")), (0, ""))
    separator = next((each for each in _SEPARATORS if each in first), ",")
    if _FIGURES.fullmatch(first):
        return list(PLAIN), _lines(chain((first,), stream), separator, at)
    header = next(csv.reader((first,), delimiter=separator), [])
    return [column.strip() for column in header], _lines(stream, separator, at + 1)


def is_fixed_width(text: str) -> bool:
    """Columns aligned with spaces, under a header with a line of dashes: the default of `sacct`."""
    lines = text.lstrip().split("\n", 2)
    return len(lines) > 1 and _RULED.fullmatch(lines[1]) is not None


def fields(values: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """The fields of a line by column name; those missing at its end are empty."""
    if len(values) > len(columns) and any(value.strip() for value in values[len(columns) :]):
        raise ValueError(
            f"{len(values)} fields, but there are {len(columns)} columns (does a value contain the separator?)"
        )
    missing = len(columns) - len(values)
    return {column: value.strip() for column, value in zip(columns, [*values, *[""] * missing], strict=False)}


def _lines(text: Iterator[str] | Sequence[str], separator: str, first: int) -> Iterator[Line]:
    """Slurm quotes nothing: a quotation mark belongs to a job's name. Elsewhere an unclosed one would hide
    all following lines, and is refused where it begins."""
    quoting: Literal[0, 3] = csv.QUOTE_NONE if separator == "|" else csv.QUOTE_MINIMAL
    found = csv.reader(text, delimiter=separator, quoting=quoting, strict=True)
    begins = first
    try:
        for values in found:
            if values:
                yield first + found.line_num - 1, values
            begins = first + found.line_num
    except csv.Error as error:
        unclosed = "a quotation mark is never closed" if "unexpected end" in str(error) else str(error)
        raise ValueError(f"line {begins}: {unclosed}") from error
