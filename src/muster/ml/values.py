"""Inputs and outputs of a job, under v2's names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from muster.wire.codec import Json


@runtime_checkable
class Described(Protocol):
    """An object that can be written in a job file."""

    def described(self) -> dict[str, Json]: ...


Value = Json | Described | os.PathLike[str] | Mapping[str, "Value"]
"""A value in a job that can still be changed."""


class Input:
    """A file, a folder, or a declared plain value."""

    def __init__(
        self,
        *,
        type: str = "uri_folder",
        path: Any = None,
        mode: str | None = None,
        default: Json = None,
        optional: bool | None = None,
        min: float | None = None,
        max: float | None = None,
        enum: list[Json] | None = None,
        description: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.type = type
        self.path = None if path is None else str(getattr(path, "path", path))
        self.mode = mode
        self.default = default
        self.optional = optional
        self.limits: dict[str, Json] = {"min": min, "max": max, "enum": enum}
        self.description = description
        self.more: dict[str, Json] = kwargs

    def described(self) -> dict[str, Json]:
        """The value as in a job file."""
        plain: dict[str, Json] = {"path": self.path, "mode": self.mode, "default": self.default, **self.limits}
        return {"type": self.type, **_given({**plain, "optional": self.optional}), **self.more}


class Output:
    """A file or folder that a job writes."""

    def __init__(
        self,
        *,
        type: str = "uri_folder",
        path: str | None = None,
        mode: str | None = None,
        name: str | None = None,
        version: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.type = type
        self.path = path
        self.mode = mode
        self.name = name
        self.version = version
        self.more: dict[str, Json] = kwargs

    def described(self) -> dict[str, Json]:
        """The value as in a job file."""
        plain: dict[str, Json] = {"path": self.path, "mode": self.mode, "name": self.name, "version": self.version}
        return {"type": self.type, **_given(plain), **self.more}


class Section(dict[str, Any]):
    """Part of a job whose entries are also attributes: `job.inputs.lr = 0.1`, `job.outputs["model"]`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self:
            return self[name]
        raise AttributeError(f"there is no {name!r} here; there are: {', '.join(map(str, self)) or 'none'}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def section(value: Any) -> Any:
    """A mapping with its entries as attributes; anything else as it is."""
    return Section(value) if isinstance(value, Mapping) and not isinstance(value, Section) else value


def plain(value: Value) -> Json:
    """A value and everything in it, as in a job file."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return plain(value.described()) if isinstance(value, Described) else value


def _given(values: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in values.items() if value is not None}
