"""What a message is: a frozen dataclass that the codec, FastAPI and mypy all understand. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

from muster.wire.codec import to_json

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def wire(cls: type[T]) -> type[T]:
    """Make a class a message: frozen, and refusing unknown fields where FastAPI takes it."""
    made = dataclass(frozen=True)(cls)
    made.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]
    if any(item.metadata.get("omit") for item in fields(made)):  # type: ignore[arg-type]
        made.__get_pydantic_core_schema__ = classmethod(_schema)  # type: ignore[attr-defined]
    return made


def _schema(cls: type[Any], source: Any, handler: Callable[[Any], Any]) -> Any:
    """Pydantic's hook: it would write every field, so what may be left out is written by the codec."""
    schema = handler(source)
    schema["serialization"] = {"type": "function-plain", "function": to_json}
    return schema


def check_pattern(name: str, value: str, pattern: re.Pattern[str], allowed: str) -> None:
    """Refuse a text that does not match as a whole."""
    if not pattern.fullmatch(value):
        raise ValueError(f"{name} {value[:80]!r} is not valid: use {allowed}")


def check_range(name: str, value: float, least: float, most: float | None = None) -> None:
    """Refuse a number that is too small or too large."""
    if value < least or (most is not None and value > most):
        limit = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
        raise ValueError(f"{name} {value!r} is out of range: use {limit}")
