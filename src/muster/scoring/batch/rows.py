"""The result of `run()`, as lines of text."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Iterable, List


class BadResult(TypeError):
    """`run()` returned something that is not a list of results."""


def rows_of(result: Any) -> List[str]:
    """A line for each result: the rows of a DataFrame as CSV, the elements of anything else."""
    if hasattr(result, "itertuples"):
        return [_csv(row) for row in result.itertuples(index=False)]
    if isinstance(result, (str, bytes)) or not hasattr(result, "__iter__"):
        raise BadResult(
            "run() returned {}; it returns a list with an element for each success, or a DataFrame".format(
                type(result).__name__
            )
        )
    listed = result.tolist() if hasattr(result, "tolist") else result
    return [_line(item) for item in listed]


def _line(item: Any) -> str:
    if isinstance(item, bytes):
        item = item.decode("utf-8", "replace")
    if isinstance(item, str):
        return _one_line(item)
    if hasattr(item, "tolist"):
        item = item.tolist()
    return json.dumps(item, default=str)


def _csv(row: Iterable[Any]) -> str:
    target = io.StringIO()
    csv.writer(target, lineterminator="").writerow(list(row))
    return _one_line(target.getvalue())


def _one_line(text: str) -> str:
    """One result is one line in UTF-8, whatever it contains: a file name may not be valid text."""
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace").decode()
