"""The key of an environment in the cache, and the names of its packages. Standard library only."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict

from muster.wire.node.recipes import Recipe

# Raised when the same recipe is built differently, so that earlier builds are not used for it.
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SECRET = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def package_names(recipe: Recipe) -> frozenset[str]:
    """The packages that a recipe asks for, by their normalised names."""
    return frozenset(name for text in recipe.requirements if (name := requirement_name(text)))


def key_of(recipe: Recipe, python: str, platform: str) -> str:
    """The name of the environment's folder: the same for the same content on the same Python and platform."""
    content = {
        **asdict(recipe),
        "requirements": sorted({_plain(text) for text in recipe.requirements}),
        "conda": sorted({text.strip() for text in recipe.conda}),
        "constraints": sorted(recipe.constraints),
        "label": "",
        # The interpreter that was found counts instead, and a job's variables are set when it starts.
        "python": "",
        "variables": {},
    }
    text = json.dumps([_FORMAT, content, python, platform], sort_keys=True)
    return f"py{python}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def requirement_name(text: str) -> str | None:
    """The normalised package name of a requirement; None for a bare path or address."""
    bare = text.strip()
    if bare.startswith(("-", ".", "/")) or re.match(r"[a-z+]+://", bare):
        return None
    match = _NAME.match(bare)
    return normalised(match.group()) if match else None


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def without_secrets(text: str) -> str:
    """Addresses without the user names and passwords in them."""
    return _SECRET.sub("****", text)


def _plain(text: str) -> str:
    """A requirement without differences that do not matter: blanks and the spelling of its name."""
    bare = " ".join(text.split())
    name = requirement_name(bare)
    match = _NAME.match(bare)
    if name is None or match is None:
        return bare
    rest = bare[match.end() :]
    head, mark, tail = rest.partition(";")
    if "@" in head:
        return f"{name}{rest}"
    return f"{name}{head.replace(' ', '')}" + (f"; {tail.strip()}" if mark else "")
