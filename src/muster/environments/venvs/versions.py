"""Versions that a requirement pins, and what to try if they do not exist. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIN = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*={2,3}\s*([0-9][\w.+!-]*?)(\.\*)?\s*")
_CEILING = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*(?:[<>!~]=?[^;]*)")


def pinned(text: str) -> tuple[str, str]:
    """(name with extras, version) of a requirement that allows only few versions; both empty for any other."""
    if match := _PIN.fullmatch(text):
        return match[1] + (match[2] or ""), match[3]
    match = _CEILING.fullmatch(text)
    return (match[1] + (match[2] or ""), "") if match and re.search(r"<|~=", text) else ("", "")


def candidates(text: str) -> Iterator[tuple[str, bool]]:
    """The alternatives to a pinned requirement, in order, and whether the lowest version is wanted."""
    name, version = pinned(text)
    yield text, False
    if version:
        yield f"{name}>={version}", True
    yield name, False


def loosened(text: str) -> str:
    """A pinned requirement as a lower bound; any other as it is."""
    name, version = pinned(text)
    return f"{name}>={version}" if version else name or text


def exact(name: str, resolved: str) -> str:
    """The pin of a name in a resolver's output; empty if it is not there."""
    bare = re.escape(re.sub(r"\[.*\]", "", name)).replace(r"\-", "[-_.]")
    match = re.search(rf"^{bare}(?:\[[^\]]*\])?==([^\s;\\]+)", resolved, re.IGNORECASE | re.MULTILINE)
    return f"{name}=={match[1]}" if match else ""
