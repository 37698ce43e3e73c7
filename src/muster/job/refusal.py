"""The form of a refusal: a message, the key, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic_core import PydanticCustomError

REFUSAL = "muster_refusal"
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One error in a job, with its location."""

    path: Path
    message: str
    hint: str = ""

    @property
    def key(self) -> str:
        """The path as written by people: `inputs.images.mode`, `command[2]`."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


def refusal(message: str, hint: str = "", at: Path = ()) -> PydanticCustomError:
    """The error that a validator raises for one problem; `at` is relative to the value that it validates."""
    return refusals([Problem(at, message, hint)])


def refusals(problems: Iterable[Problem]) -> PydanticCustomError:
    """The error that a validator raises for several problems at once."""
    found = tuple(problems)
    message = "; ".join(f"{problem.key}: {problem.message}" if problem.path else problem.message for problem in found)
    return PydanticCustomError(REFUSAL, "{message}", {"message": message, "problems": found})


def show(value: Any) -> str:
    """A value for an error message: short, and written as in YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…" + text[-1]


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean …? ` with the closest known name, or an empty text."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'? " if close else ""
