"""Conda files: split into Python, pip's packages and packages only conda has; and written from exact versions. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.environments.venvs import locks
from muster.job.refusal import nearest, show
from muster.wire.codec import Json
from muster.wire.node.recipes import Recipe

_KEYS = ("name", "channels", "dependencies", "prefix", "variables", "platforms")
_PYTHON = re.compile(r"(?:[\w-]+::)?python\s*(?P<version>[=<>!~].*)?", re.IGNORECASE)
# pip is part of every environment that Muster builds.
_GIVEN = re.compile(r"(?:[\w-]+::)?pip\s*(?:[=<>!~].*)?", re.IGNORECASE)
_PACKAGE = re.compile(r"(?:[\w./-]+::)?[A-Za-z0-9_][\w.-]*\s*(?:[=<>!~ ].*)?")


@dataclass(frozen=True)
class CondaFile:
    """The content of a conda file."""

    python: str | None
    pip: tuple[str, ...]
    conda: tuple[str, ...]
    channels: tuple[str, ...]
    variables: Mapping[str, str]


class BadCondaFile(Exception):
    """It is not a conda file; `path` is where the error is."""

    def __init__(self, path: tuple[str | int, ...], message: str, hint: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.hint = hint


def read(data: Any) -> CondaFile:
    """Parse the content of a conda file; raises BadCondaFile."""
    if not isinstance(data, Mapping):
        raise BadCondaFile((), f"{show(data)} is given; a conda file is a mapping", "Begin it with `dependencies:`.")
    for key in data:
        if key not in _KEYS:
            guess = nearest(str(key), _KEYS)
            raise BadCondaFile((str(key),), f"unknown key; {guess}allowed: {', '.join(_KEYS)}", "Correct or remove it.")
    python: str | None = None
    pip: list[str] = []
    conda: list[str] = []
    for index, item in enumerate(_list(data, "dependencies")):
        if isinstance(item, Mapping):
            pip += _pip_part(item, index)
            continue
        text = str(item).strip()
        if not isinstance(item, str) or not _PACKAGE.fullmatch(text):
            hint = "Write NAME, NAME=VERSION, or a mapping with `pip:`."
            raise BadCondaFile(("dependencies", index), f"{show(item)} is not a package", hint)
        if match := _PYTHON.fullmatch(text):
            python = _python(match["version"])
        elif not _GIVEN.fullmatch(text):
            conda.append(text)
    channels = tuple(str(channel) for channel in _list(data, "channels"))
    variables = {str(key): str(value) for key, value in (data.get("variables") or {}).items()}
    return CondaFile(python, tuple(pip), tuple(conda), channels, variables)


def conda_text(name: str, recipe: Recipe, python: str, lock: Sequence[str], indexes: Sequence[str]) -> str:
    """The versions of an environment, as a conda file that builds exactly these again."""
    conda = locks.conda(lock)
    pip = [line for line in lock if not line.startswith("conda:")]
    version = ".".join(python.split(".")[:2])
    named = [line for line in conda if not line.startswith(("python=", "pip="))]
    lines = [f"name: {json.dumps(name)}"]
    if recipe.channels:
        lines.append(f"channels: {json.dumps(list(recipe.channels))}")
    lines += ["dependencies:", f"  - python={version}", "  - pip", *(f"  - {json.dumps(line)}" for line in named)]
    options = [*recipe.options, *(f"--extra-index-url {url}" for url in indexes)]
    if pip or options:
        # Packages that conda has installed are listed among pip's as well.
        own = {line.split("=")[0].lower() for line in conda}
        wanted = [line for line in pip if line.split("==")[0].lower().replace("_", "-") not in own]
        # pip requires hashes for all or for none.
        wanted = wanted if all(map(locks.hashes, wanted)) else [locks.plain(line) for line in wanted]
        lines += ["  - pip:", *(f"      - {json.dumps(line)}" for line in (*options, *wanted))]
    if recipe.variables:
        lines += ["variables:", *(f"  {key}: {json.dumps(value)}" for key, value in recipe.variables.items())]
    return "\n".join(lines) + "\n"


def _list(data: Mapping[str, Json], key: str) -> list[Any]:
    value = data.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise BadCondaFile((key,), f"{show(value)} is given; a list is needed", f"Write {key}: [A, B].")
    return list(value)


def _pip_part(item: Mapping[str, Json], index: int) -> list[str]:
    at: tuple[str | int, ...] = ("dependencies", index)
    if set(item) != {"pip"}:
        raise BadCondaFile(at, f"{', '.join(map(str, item))}: only `pip` may stand here", "Write pip: [A, B].")
    value = item["pip"]
    if not isinstance(value, list | tuple) or not all(isinstance(line, str) for line in value):
        raise BadCondaFile((*at, "pip"), "a list of requirements is needed", "Write pip: [numpy, tqdm==4.66].")
    return [str(line) for line in value]


def _python(version: str | None) -> str | None:
    """`=3.8`, `==3.8.1` and `=3.8=build` as a version; ranges as they are."""
    if not version:
        return None
    text = version.strip()
    if text.startswith("="):
        return text.lstrip("=").split("=", 1)[0].strip()
    return text.replace(" ", "")
