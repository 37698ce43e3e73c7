"""What an environment is made of, and the key that it is kept under. Standard library only: agents read it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

# Raised when the same recipe is built differently, so that what was built before is not taken for it.
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SECRET = re.compile(r"(?<=://)[^/@\s]+(?=@)")


@dataclass(frozen=True)
class Recipe:
    """A Python with packages."""

    label: str
    """What people call it; it changes nothing in what is built."""
    requirements: tuple[str, ...] = ()
    python: str | None = None
    """A version such as `3.11` or `>=3.9`, or an interpreter's path; None: that of the job."""
    options: tuple[str, ...] = ()
    """Lines of a requirements file that say where packages come from, such as `--index-url …`."""
    indexes: tuple[str, ...] = ()
    """Indexes that are added unless the site's own configuration names where packages come from."""
    channels: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    """Packages that only conda has."""
    constraints: tuple[str, ...] = ()
    """Versions that an earlier build of it came to."""
    flavour: str = ""
    """`cpu` or `gpu` where that makes a difference to how it is built."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What a rank finds set in it, unless the job says otherwise."""

    @property
    def names(self) -> frozenset[str]:
        """The packages that it asks for, by their normalised names."""
        return frozenset(name for text in self.requirements if (name := requirement_name(text)))

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value}

    def locked(self, versions: Iterable[str]) -> Recipe:
        return replace(self, constraints=tuple(versions))


def recipe_from_json(data: Mapping[str, Any]) -> Recipe:
    lists = ("requirements", "options", "indexes", "channels", "conda", "constraints")
    fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in data.items()}
    return Recipe(**{"label": "environment", **fields})


def key_of(recipe: Recipe, python: str, platform: str) -> str:
    """The name of the environment's folder: the same content on the same Python and platform has the same one."""
    content = {
        **asdict(recipe),
        "requirements": sorted({_plain(text) for text in recipe.requirements}),
        "conda": sorted({text.strip() for text in recipe.conda}),
        "constraints": sorted(recipe.constraints),
        "label": "",
        # The interpreter that was found is what counts, and a job's variables are set when it starts.
        "python": "",
        "variables": {},
    }
    text = json.dumps([_FORMAT, content, python, platform], sort_keys=True)
    return f"py{python}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def requirement_name(text: str) -> str | None:
    """The normalised name of what a requirement asks for; None for a bare path or address."""
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
    """A requirement as it counts: blanks and the spelling of its name do not."""
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
