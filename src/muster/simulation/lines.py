"""A file of a trace as columns and rows, whatever separates them and whichever program wrote it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

PLAIN = ("start", "length", "gpus")
"""The columns of a file without a header that has figures alone."""
_SEPARATORS = "|\t;,"
_FIGURES = re.compile(r"[\d.\s,;|-]+")
_RULED = re.compile(r"[-\s]*-{4}[-\s]*")

Line = tuple[int, list[str]]
"""Its number in the file, and its fields."""


def decoded(data: bytes) -> str:
    """Text as spreadsheets and shells of any system write it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def rows(text: str) -> tuple[list[str], Iterator[Line]]:
    """The names of the columns as they are written, and the lines below; empty lines and comments count for nothing."""
    stream = io.StringIO(text.removeprefix("\ufeff"), newline=None)
    numbered = enumerate(stream, 1)
    at, first = next(((at, line) for at, line in numbered if line.strip() and not line.startswith("#")), (0, ""))
    separator = next((each for each in _SEPARATORS if each in first), ",")
    if _FIGURES.fullmatch(first):
        return list(PLAIN), _lines(chain((first,), stream), separator, at)
    header = next(csv.reader((first,), delimiter=separator), [])
    return [column.strip() for column in header], _lines(stream, separator, at + 1)


def is_fixed_width(text: str) -> bool:
    """Columns that are aligned with spaces, below them a line of dashes: as `sacct` writes unless told otherwise."""
    lines = text.lstrip().split("\n", 2)
    return len(lines) > 1 and _RULED.fullmatch(lines[1]) is not None


def fields(values: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """A line by the names of its columns; those that are missing at its end are empty."""
    if len(values) > len(columns) and any(value.strip() for value in values[len(columns) :]):
        raise ValueError(
            f"{len(values)} fields, but there are {len(columns)} columns (does a value contain the separator?)"
        )
    missing = len(columns) - len(values)
    return {column: value.strip() for column, value in zip(columns, [*values, *[""] * missing], strict=False)}


def _lines(text: Iterator[str] | Sequence[str], separator: str, first: int) -> Iterator[Line]:
    """Slurm quotes nothing: a quotation mark in the name of a job is one. Elsewhere one that is never closed would hide
    all lines behind it, and is refused where it begins."""
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
