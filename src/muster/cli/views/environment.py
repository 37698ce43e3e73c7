"""Environments as lines: lists and details. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.cli.console import Paint
from muster.cli.text import ago, size, table, wrapped
from muster.wire.environments import EnvironmentView
from muster.wire.message import wire
from muster.wire.node.recipes import Recipe


@dataclass(frozen=True)
class CuratedView:
    """An environment that comes with Muster."""

    name: str
    description: str


@wire
class BuiltView:
    """An environment that is built on this machine."""

    key: str
    label: str
    python: str
    packages: int
    size: int
    built_at: float | None
    used_at: float | None
    in_use: bool
    folder: str


@wire
class LockedView(BuiltView):
    """A built environment with its exact versions."""

    lock: tuple[str, ...]


@dataclass(frozen=True)
class ImageView:
    """An image that was built on this machine."""

    key: str
    name: str
    engine: str
    size: int
    used_at: float | None
    in_use: bool


@dataclass(frozen=True)
class EnvironmentList:
    """The JSON of `muster env list`."""

    curated: tuple[CuratedView, ...]
    registered: tuple[EnvironmentView, ...]
    built: tuple[BuiltView, ...]
    folder: str
    images: tuple[ImageView, ...]


@dataclass(frozen=True)
class EnvironmentDescription:
    """The JSON of `muster env show`."""

    name: str
    notices: tuple[str, ...]
    recipe: Recipe
    built: LockedView | None


def listing(found: EnvironmentList, paint: Paint, now: float, room: int | None = None) -> list[str]:
    """The tables of `muster env list`."""
    lines = [paint("curated", "bold"), *_named({item.name: item.description for item in found.curated}, room)]
    if found.registered:
        versions = {item.name: f"version {item.version}" for item in found.registered}
        lines += ["", paint("registered", "bold"), *_named(versions, room)]
    lines += ["", paint(f"built in {found.folder}", "bold")]
    built = [
        (item.key, item.label, item.python, str(item.packages), size(item.size), _last_used(item, now))
        for item in found.built
    ]
    header = [paint(title, "dim") for title in ("KEY", "NAME", "PYTHON", "PACKAGES", "SIZE", "USED")]
    lines += [f"  {line}" for line in (table(header, built) if built else ["nothing yet"])]
    if not found.images:
        return lines
    header = [paint(title, "dim") for title in ("KEY", "NAME", "ENGINE", "SIZE", "USED")]
    images = [(item.key, item.name, item.engine, size(item.size), _last_used(item, now)) for item in found.images]
    return [*lines, "", paint("images that were made here", "bold"), *(f"  {line}" for line in table(header, images))]


def description(found: EnvironmentDescription, paint: Paint, now: float) -> list[str]:
    """One environment."""
    recipe, built = found.recipe, found.built
    lines = [paint(found.name, "bold"), *(f"  {paint('notice:', 'yellow')} {text}" for text in found.notices)]
    if recipe.python:
        lines.append(f"  python {recipe.python}")
    lines += [f"  {text}" for text in (*recipe.conda, *recipe.requirements, *recipe.options)]
    lines += [f"  {name}={value}" for name, value in recipe.variables.items()]
    if built is None:
        return [*lines, "", "not built here: the first job that uses it builds it, or `muster env build`"]
    used = _last_used(built, now)
    lines += ["", f"{built.key}  Python {built.python}  {size(built.size)}  used {used}"]
    return [*lines, *(f"  {text.partition(' --hash=')[0]}" for text in built.lock)]


def _named(texts: Mapping[str, str], room: int | None) -> list[str]:
    """Names with a text each, which wraps in its own column."""
    names = max(map(len, texts), default=0)
    return [
        f"  {'' if number else name:<{names}}  {line}"
        for name, text in texts.items()
        for number, line in enumerate(wrapped(text, room, names + 4))
    ]


def _last_used(item: BuiltView | ImageView, now: float) -> str:
    if item.in_use:
        return "now"
    return ago(item.used_at, now) if item.used_at else "never"
