"""Splits a command line like a shell, but keeps each word as written: quotes and variables are for the rank."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from muster.errors import JobError

_QUOTES = "'\""


def split(line: str) -> list[str]:
    """The words of a line, as written: `"a b"` and `$(hostname -s)` are one each."""
    words: list[str] = []
    word, depth, quote = "", 0, ""
    escaped = False
    for char in line:
        if escaped or (char == "\\" and quote != "'"):
            word += char
            escaped = not escaped
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in _QUOTES:
            quote = char
        elif char in "({" and (word.endswith("$") or depth):
            depth += 1
        elif char in ")}" and depth:
            depth -= 1
        elif char.isspace() and not depth:
            if word:
                words.append(word)
            word = ""
            continue
        word += char
    if quote or depth:
        raise JobError(f"the line has an unclosed quote or parenthesis: {line.strip()}", "Close it.")
    return [*words, word] if word else words


def quoted(arguments: Iterable[str]) -> list[str]:
    """Arguments that a shell has already split, as words again."""
    return [shlex.quote(argument) for argument in arguments]


def value(word: str) -> str:
    """The value of a word without its quotes; variables are unchanged."""
    try:
        return "".join(shlex.split(word)) if word else ""
    except ValueError:
        return word


def program(words: Sequence[str]) -> str:
    """The name of the program that a command starts, without its folder."""
    return value(words[0]).rpartition("/")[2] if words else ""
