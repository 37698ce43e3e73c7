"""Defines messages: frozen dataclasses that the codec, FastAPI and mypy all understand. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

from muster.wire.codec import to_json

T = TypeVar("T")
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def wire(cls: type[T]) -> type[T]:
    """Make a class a message: frozen, and rejecting unknown fields where FastAPI parses it."""
    # Only the constructor is compiled for each class: every command imports many of them.
    made = dataclass(repr=False, eq=False)(cls)
    made.__setattr__ = _set_once  # type: ignore[method-assign]
    made.__delattr__ = _refuse  # type: ignore[method-assign]
    made.__eq__ = _equal  # type: ignore[method-assign]
    made.__hash__ = _hash  # type: ignore[method-assign]
    made.__repr__ = _shown  # type: ignore[method-assign]
    made.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]
    if any(item.metadata.get("omit") for item in fields(made)):  # type: ignore[arg-type]
        made.__get_pydantic_core_schema__ = classmethod(_schema)  # type: ignore[attr-defined]
    return made


def _set_once(self: Any, name: str, value: Any) -> None:
    """The constructor sets each field once; nobody else sets any."""
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _refuse(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _equal(self: Any, other: Any) -> bool:
    return self.__dict__ == other.__dict__ if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__.values()))


def _shown(self: Any) -> str:
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _schema(cls: type[Any], source: Any, handler: Callable[[Any], Any]) -> Any:
    """Pydantic's hook: it would write every field, so messages with optional fields are written by the codec."""
    schema = handler(source)
    schema["serialization"] = {"type": "function-plain", "function": to_json}
    return schema


def check_name(value: str) -> None:
    """Refuse what cannot be the name of a cluster or a model."""
    check_pattern("name", value, _NAME, "letters, digits, '_', '.' and '-', at most 64")


def check_pattern(name: str, value: str, pattern: re.Pattern[str], allowed: str) -> None:
    """Refuse a text that does not match as a whole."""
    if not pattern.fullmatch(value):
        raise ValueError(f"{name} {value[:80]!r} is not valid: use {allowed}")


def check_range(name: str, value: float, least: float, most: float | None = None) -> None:
    """Refuse a number that is too small or too large."""
    if value < least or (most is not None and value > most):
        limit = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
        raise ValueError(f"{name} {value!r} is out of range: use {limit}")
