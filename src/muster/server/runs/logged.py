"""Parses a line that a script logged. Pure, and trusts nothing: ranks may write anything there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.wire.codec import Json
from muster.wire.runs import MetricPoint, Progress, rank_of
from muster.wire.text import storable

_NAME_LENGTH = 255
_TYPE_LENGTH = 16
_TEXT_LENGTH = 64 << 10
_DEPTH = 16
"""How deeply a value may be nested; a table is two deep."""
_WHOLE = 1 << 63


class Unusable(ValueError):
    """What was logged cannot be recorded; the message says why."""


@dataclass(frozen=True)
class Tag:
    """A tag that a script gives its run."""

    name: str
    value: str


@dataclass(frozen=True)
class Param:
    """A parameter that a script got, or chose."""

    name: str
    value: str


@dataclass(frozen=True)
class LoggedModel:
    """A model that a script registers."""

    name: str
    path: str = ""
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """How many events of a script found no room on its node's disk."""

    source: str
    count: int


Logged = MetricPoint | Tag | Param | Progress | LoggedModel | Lost


def read_line(line: bytes, attempt: int, source: str) -> Logged | None:
    """The parsed line; None for one that is not an event, since scripts may write there too. Raises Unusable."""
    try:
        item = json.loads(line)
    except RecursionError:
        raise Unusable("it is nested too deeply") from None
    except ValueError:
        return None
    if not isinstance(item, dict):
        return None
    kind, name = item.get("kind"), item.get("name")
    if kind == "metric" and isinstance(name, str):
        return _metric(item, name, attempt, source)
    if kind == "tag" and isinstance(name, str):
        return Tag(_name(name), _text(value(item.get("value"))))
    if kind == "param" and isinstance(name, str):
        return Param(_name(name), _text(value(item.get("value"))))
    if kind == "progress":
        return _progress(item, source)
    if kind == "model" and isinstance(name, str) and name:
        return _model(item, name)
    if kind == "lost":
        return Lost(source, int(number(item.get("count")) or 0))
    return None


def value(given: Json, depth: int = 0) -> Json:
    """A value that can be stored and shown; numbers that JSON lacks become the texts that the in-run API writes."""
    if given is None or isinstance(given, bool):
        return given
    if isinstance(given, str):
        return storable(given)
    if isinstance(given, int):
        return given if -_WHOLE <= given < _WHOLE else _float(given)
    if isinstance(given, float):
        if math.isfinite(given):
            return given
        return "NaN" if math.isnan(given) else "Infinity" if given > 0 else "-Infinity"
    if depth >= _DEPTH:
        raise Unusable("its value is nested too deeply")
    if isinstance(given, Mapping):
        return {storable(str(key)): value(item, depth + 1) for key, item in given.items()}
    return [value(item, depth + 1) for item in given]


def number(given: object) -> float | None:
    """A finite number; None where there is none."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    found = _float(given)
    return found if math.isfinite(found) else None


def _float(given: int | float) -> float:
    try:
        return float(given)
    except OverflowError:
        raise Unusable("a number in it is too large") from None


def _metric(item: Mapping[str, Json], name: str, attempt: int, source: str) -> MetricPoint:
    kind = item.get("type", "scalar")
    return MetricPoint(
        name=_name(name),
        value=value(item.get("value")),
        step=number(item.get("step")),
        rank=rank_of(source),
        source=source[:_NAME_LENGTH],
        type=_text(kind)[:_TYPE_LENGTH],
        at=number(item.get("at")) or 0.0,
        attempt=attempt,
    )


def _progress(item: Mapping[str, Json], source: str) -> Progress | None:
    """The progress that a script reports; None where it is not a number."""
    done, rank = number(item.get("done")), rank_of(source)
    if done is None or rank is None:
        return None
    unit = item.get("unit") or ""
    return Progress(done, number(item.get("total")), _text(unit)[:_NAME_LENGTH], rank)


def _model(item: Mapping[str, Json], name: str) -> LoggedModel:
    description = item.get("description")
    tags, properties = (_mapping(item, part) for part in ("tags", "properties"))
    return LoggedModel(
        _name(name),
        _text(item.get("path") or ""),
        None if description is None else _text(description),
        {key: _text(given) for key, given in tags.items()},
        properties,
    )


def _mapping(item: Mapping[str, Json], part: str) -> Mapping[str, Json]:
    given = value(item.get(part) or {})
    if not isinstance(given, Mapping):
        raise Unusable(f"the {part} of a model are not a mapping")
    return given


def _name(text: str) -> str:
    return storable(text)[:_NAME_LENGTH]


def _text(given: Json) -> str:
    """A scalar as text; raises for a list or mapping."""
    if isinstance(given, Sequence | Mapping) and not isinstance(given, str):
        raise Unusable("a text was wanted, and there is a list or mapping")
    return storable(given if isinstance(given, str) else str(given))[:_TEXT_LENGTH]
