"""Sanitizes text: what a database, terminal or JSON parser would not accept is replaced, or shown as an escape."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Control characters, direction marks and invisible marks, lone surrogates, line separators."""
_JOINERS = "\u200c\u200d"
"""Some scripts and many emoji need these."""


_WORK = re.compile(r"(?<![\w.-])/[^\s\"']*?/attempts/[^/\s\"']+/work/")
"""The folder on a node that a job's code is copied to."""


def own_paths(text: str) -> str:
    """The text with paths of a job's files relative to its code folder, not as on the node."""
    return _WORK.sub("", text) if "/attempts/" in text else text


_WANTED = {
    "int_": "a whole number", "float_": "a number", "bool_": "true or false", "string_": "a text", "list_": "a list",
    "dict_": "a mapping (KEY: VALUE)", "model_": "a mapping (KEY: VALUE)",
}  # fmt: skip
_BOUNDS = {
    "greater_than": "more than {gt}", "greater_than_equal": "at least {ge}", "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}  # fmt: skip


def refused_value(kind: str, given: object, bounds: Mapping[str, object], otherwise: str) -> str:
    """A message for a validation error: names the value, and what is allowed."""
    shown = str(given) if isinstance(given, int | float) else repr(given)
    if kind in _BOUNDS:
        return f"{given!s} is out of range; give {_BOUNDS[kind].format(**bounds)}"
    if kind == "literal_error":
        return f"{shown} is not allowed; give {bounds.get('expected')}"
    if kind == "value_error":
        return otherwise.removeprefix("Value error, ")
    wanted = next((words for begin, words in _WANTED.items() if kind.startswith(begin)), None)
    return f"{shown} is not {wanted}" if wanted else f"{shown}: {otherwise}"


def storable(text: str) -> str:
    """The text without lone surrogates and NUL characters, which no database accepts."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    # The fast check first: nearly all text is fine.
    return text if is_encodable(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_encodable(text: str) -> bool:
    """Whether it can be written as UTF-8: lone surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str, lines: bool = False) -> str:
    """The text with everything that would act on a terminal escaped; with `lines` it may have line breaks."""
    if text.isprintable():
        return text
    return "".join(char if _is_shown(char, lines) else _escaped(char) for char in text)


def _is_shown(char: str, lines: bool) -> bool:
    if lines and char in "\n\t":
        return True
    return char in _JOINERS or unicodedata.category(char) not in _HIDDEN


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def size(count: float) -> str:
    """Such as `512 B`, `1.5 MB`."""
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    for unit in units[:-1]:
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {units[-1]}"
