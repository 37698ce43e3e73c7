"""Notices of the SDK to the user: each once per process, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from muster.wire.codec import Json

_printed: set[str] = set()


def tell(*notices: str) -> None:
    for notice in notices:
        if notice not in _printed:
            _printed.add(notice)
            print(f"muster: {notice}", file=sys.stderr, flush=True)


def ignored(what: str, given: Mapping[str, Json]) -> list[str]:
    """A notice for each v1 argument that is given but has no meaning here."""
    return [f"{what}: {name}={value!r} means nothing here and is ignored" for name, value in given.items() if value]
