"""JSON in columns: lone surrogates are written and read as U+FFFD, or one row would break every answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from muster.wire.codec import Json
from muster.wire.text import storable


def write_json(value: Json) -> str:
    """A value as stored."""
    written = json.dumps(value)
    # Only text beyond ASCII is written with escapes, and needs a second look.
    return json.dumps(_storable(value)) if "\\u" in written else written


def read_json(stored: str | bytes) -> Json:
    """A stored value, even where an earlier version stored lone surrogates."""
    found: Json = json.loads(stored)
    escape = "\\u" if isinstance(stored, str) else b"\\u"
    return _storable(found) if escape in stored else found  # type: ignore[operator]


def _storable(value: Json) -> Json:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(key): _storable(item) for key, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, Sequence) else value


JSON_TEXT: Mapping[str, Any] = {"json_serializer": write_json, "json_deserializer": read_json}
"""For `create_engine`."""
