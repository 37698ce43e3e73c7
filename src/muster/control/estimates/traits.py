"""The traits of a run that similar runs share, from coarse to fine."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from muster.control.estimates.book import Traits
from muster.wire.codec import Json

_SCRIPTS = (".py", ".sh", ".ipynb", ".R", ".jl")


def traits_of(shape: Hashable, person: str, experiment: str, spec: Mapping[str, Json]) -> Traits:
    """Its size, person, experiment, script, environment, inputs, whole command, and name (siblings share it)."""
    command = _words(spec.get("command"))
    environment, inputs = str(spec.get("environment") or ""), str(spec.get("inputs") or "")
    name = str(spec.get("display_name") or spec.get("name") or "")
    return (shape, person, experiment, _script(command), environment, inputs, command, name)


def _words(command: Json) -> tuple[str, ...]:
    if isinstance(command, str):
        return tuple(command.split())
    return tuple(str(word) for word in command) if isinstance(command, Sequence) else ()


def _script(command: Sequence[str]) -> str:
    """The script that is run, or else the program."""
    return next((word for word in command if word.endswith(_SCRIPTS)), command[0] if command else "")
