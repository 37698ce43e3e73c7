"""Masks secrets in what ranks print, at equal length, before bytes leave the node."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

LEAST = 4
"""Shorter texts are not masked: they are everywhere."""
_LEAST_LINE = 8
_WRAPS = (64, 76)
"""Columns after which tools break base64 into lines."""


class Masker:
    """Knows every spelling of some secrets."""

    def __init__(self, values: Iterable[str]) -> None:
        spellings = {text for value in values for text in _spellings(value)}
        self._patterns = sorted((text for text in spellings if len(text) >= LEAST), key=len, reverse=True)
        self.overlap = max((len(text) for text in self._patterns), default=1) - 1
        """How many bytes before a piece may begin a secret that ends in it."""

    def mask(self, data: bytes) -> bytes:
        """The data with every secret replaced by as many asterisks."""
        found = [(at, at + len(text)) for text in self._patterns for at in _places(data, text)]
        if not found:
            return data
        masked = bytearray(data)
        for begin, end in found:
            masked[begin:end] = b"*" * (end - begin)
        return bytes(masked)

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may begin a secret: they are held back until more follows."""
        longest = 0
        for text in self._patterns:
            most = min(len(text) - 1, len(data))
            if most > longest:
                longest = max(longest, _suffix(data, text, longest, most))
        return longest


def make_masker(values: Iterable[str]) -> Masker | None:
    """A masker; None where there is nothing to mask, so that it costs nothing."""
    given = [value for value in values if value]
    return Masker(given) if given else None


def _suffix(data: bytes, text: bytes, longer_than: int, most: int) -> int:
    """The longest suffix of the data that is a prefix of the text, if it is longer than `longer_than`."""
    tail = data[len(data) - most :]
    at = tail.find(text[:1])
    while at != -1 and most - at > longer_than:
        if text.startswith(tail[at:]):
            return most - at
        at = tail.find(text[:1], at + 1)
    return 0


def _places(data: bytes, text: bytes) -> Iterator[int]:
    at = data.find(text)
    while at != -1:
        yield at
        at = data.find(text, at + 1)


def _spellings(value: str) -> Iterator[bytes]:
    """A secret as it is, and as tools write it: base64 in every alignment, URL-quoted, in JSON, line by line."""
    raw = value.encode()
    yield raw
    yield from _base64(raw)
    for safe in ("", "/"):
        escaped = quote(value, safe=safe)
        yield escaped.encode()
        yield re.sub("%..", lambda code: code[0].lower(), escaped).encode()
    yield quote_plus(value).encode()
    yield json.dumps(value)[1:-1].encode()
    yield json.dumps(value, ensure_ascii=False)[1:-1].encode()
    yield repr(value)[1:-1].encode()
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line.encode() for line in lines if len(line) >= _LEAST_LINE)


def _base64(raw: bytes) -> Iterator[bytes]:
    """The base64 characters that depend only on the secret, for every alignment in a longer text."""
    for before in range(3):
        for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
            encoded = alphabet(b"\0" * before + raw)
            begin = -(-before * 8 // 6)
            end = (before + len(raw)) * 8 // 6
            yield encoded[begin:end]
            if before == 0:
                yield from (_wrapped(encoded[:end], columns) for columns in _WRAPS if end > columns)


def _wrapped(text: bytes, columns: int) -> bytes:
    return b"\n".join(text[at : at + columns] for at in range(0, len(text), columns))
