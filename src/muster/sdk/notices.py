"""What the SDK has to say to a person: once per process, on standard error."""

from __future__ import annotations

import sys

_told: set[str] = set()


def tell(*notices: str) -> None:
    for notice in notices:
        if notice not in _told:
            _told.add(notice)
            print(f"muster: {notice}", file=sys.stderr, flush=True)


def ignored(what: str, given: dict[str, object]) -> list[str]:
    """A notice for each v1 argument that has a value and means nothing here."""
    return [f"{what}: {name}={value!r} means nothing here and is ignored" for name, value in given.items() if value]
