"""Requests and responses that replicas collect, uploaded to the workspace."""

from __future__ import annotations

import re

from muster.wire.message import check_pattern, check_range, wire

COLLECTION = re.compile("[A-Za-z][A-Za-z0-9_-]{0,62}")
ROLLING_RATES = ("minute", "hour", "day", "month", "year")
_ID = re.compile("[0-9a-f]{32}")
_DATE = re.compile(r"\d{4}(/\d\d){0,4}")
_MOST_CHARACTERS = 4 << 20


@wire
class CollectedFile:
    """The body of `POST runs/RUN/serving/collected`: a file of JSON lines, with its content so far."""

    file_id: str
    """The same id again is the same file."""
    collection: str
    date: str
    """Its folders by date, as deep as `rolling_rate` says."""
    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        check_pattern("file_id", self.file_id, _ID, "32 hexadecimal digits")
        check_pattern("collection", self.collection, COLLECTION, "letters, digits, - and _")
        check_pattern("date", self.date, _DATE, "a date such as 2026/11/18/06")
        check_range("the length of lines", sum(map(len, self.lines)), 0, _MOST_CHARACTERS)
        if any("\n" in line for line in self.lines):
            raise ValueError("lines has a line break in a line: send each line separately")
