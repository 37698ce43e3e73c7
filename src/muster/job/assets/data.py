"""Data asset files: a name, a version, and the location of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.assetfile import located, mapping, read_asset_file
from muster.wire.codec import Json

_KEYS = ("name", "version", "type", "path", "description", "tags")
_SILENT = ("$schema", "id", "creation_context", "properties", "latest_version", "auto_delete_setting")
_TYPES = ("uri_file", "uri_folder", "mltable")
# Files of the preview used other keys.
_OLDER = {"local_path": "path", "file": "path", "folder": "path", "paths": "path"}


@dataclass(frozen=True)
class DataFile:
    """The content of a data asset's file."""

    name: str
    path: str
    """An absolute path on this machine, or an address."""
    type: str | None = None
    version: str | None = None
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


def read_data_file(file: Path, name: str | None = None) -> DataFile:
    """Read a data asset's file; raises JobError with the file and the key."""
    values = read_asset_file(file, "data file", (*_KEYS, *_OLDER), _SILENT)
    given, path = name or values.get("name"), _path(values)
    if not isinstance(given, str):
        raise JobError(f"{file}: `name` is missing, or is no text", "Write name: …, or give the name.")
    if not isinstance(path, str):
        raise JobError(f"{file}: `path` is missing, or is no text", "Write path: …, a file, a folder or an address.")
    kind = values.get("type")
    if kind is not None and kind not in _TYPES:
        raise JobError(f"{file}: type: {kind!r} is not allowed", f"Allowed are {', '.join(_TYPES)}.")
    return DataFile(
        given,
        located(path, file.absolute().parent),
        None if kind is None else str(kind),
        _text(values, "version"),
        _text(values, "description"),
        {key: str(value) for key, value in mapping(values, "tags").items()},
    )


def _path(values: Mapping[str, Json]) -> Json:
    """The location of the data, also under the preview's keys."""
    found = next((values[key] for key in ("path", *_OLDER) if key in values), None)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    return _path(found) if isinstance(found, Mapping) else found


def _text(values: Mapping[str, Json], key: str) -> str | None:
    return None if values.get(key) is None else str(values[key])
