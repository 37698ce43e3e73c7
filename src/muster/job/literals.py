"""Plain values as inputs: `epochs: 3`, or declared with a type as in components."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from muster.job.refusal import nearest, refusal, show

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_KEYS = ("type", "default", "optional", "min", "max", "enum")
_MAX_INT = 2**63


def input_kind(value: Any) -> str:
    """Which of the two kinds of input a value is."""
    return "<literal>" if value is None or isinstance(value, bool | int | float | str | list | tuple) else "<path>"


def input_value(value: Any) -> Any:
    """A declared plain value becomes that value; without one it becomes an optional input that is not given."""
    if not isinstance(value, Mapping) or value.get("type") not in _TYPES:
        return value
    # `mode` and empty keys are present when an optional input was stored as JSON.
    unknown = [key for key, given in value.items() if key not in (*_KEYS, "mode") and given is not None]
    if unknown:
        raise refusal(
            f"unknown key; {nearest(str(unknown[0]), _KEYS)}allowed for a {value['type']}: {', '.join(_KEYS)}",
            "Correct or remove the key.",
            at=(unknown[0],),
        )
    default = value.get("default")
    if default is not None:
        return _within(default, value)
    if value.get("optional") is not True:
        raise refusal(
            f"a {value['type']} without a value",
            f"Give --input NAME=VALUE, add `default`, write the value alone (NAME: VALUE), or add `optional: true`. "
            f"Given: {show(value)}.",
        )
    return {"type": value["type"], "optional": True}


def checked_literal(value: Any) -> Any:
    """Refuse a value that cannot become an argument."""
    if value is None:
        raise refusal("has no value", 'Give it one; write "" for an empty text.')
    if isinstance(value, list | tuple):
        raise refusal("a list cannot become an argument", "Write a text, such as 'a,b,c'.")
    if isinstance(value, float) and not math.isfinite(value):
        raise refusal(f"{value} is not a finite number", "Write it in quotes to pass it on as text.")
    if isinstance(value, int) and abs(value) > _MAX_INT:
        raise refusal("a whole number of more than 64 bits", "Write it in quotes to pass it on as text.")
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
        raise refusal("holds a character that no argument can carry", "Remove NUL and unpaired surrogates.")
    return value


def _read_as(kind: str, value: Any) -> Any:
    """A value converted to its declared type if possible: YAML reads `1e-3` as text, and people quote numbers."""
    if kind == "string":
        return str(value) if isinstance(value, bool | int | float) else value
    if not isinstance(value, str):
        return value
    if kind == "boolean":
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    for read in (int,) if kind == "integer" else (int, float):
        with suppress(ValueError):
            return read(value)
    return value


def _within(default: Any, declaration: Mapping[str, Any]) -> Any:
    kind = declaration["type"]
    default = _read_as(kind, default)
    is_kind = isinstance(default, _TYPES[kind]) and (kind == "boolean" or not isinstance(default, bool))
    if not is_kind:
        raise refusal(f"{show(default)} is not a {kind}", "Correct `default` or `type`.", at=("default",))
    try:
        low, high = (_read_as(kind, declaration.get(key)) for key in ("min", "max"))
        given = declaration.get("enum")
        enum = None if given is None else [_read_as(kind, item) for item in given]
        fits = (low is None or default >= low) and (high is None or default <= high)
        fits = fits and (enum is None or default in enum)
    except TypeError:
        raise refusal("min, max or enum do not fit the type", f"Write them as a {kind} too.") from None
    if not fits:
        limits = ", ".join(f"{key}: {declaration[key]}" for key in ("min", "max", "enum") if key in declaration)
        raise refusal(f"{show(default)} is outside of what is declared ({limits})", "Correct it.", at=("default",))
    return default
