"""Which metrics are a throughput or a loss, by their names. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import TypeGuard

from muster.cli.text import number, size
from muster.wire.codec import Json

_THROUGHPUT = re.compile(
    r"throughput|(?P<unit>images|samples|tokens|examples|items|records|rows|steps)(_per_|/)s(ec|econd)?", re.IGNORECASE
)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""The server's texts for numbers that JSON lacks."""
_LOSS = re.compile(r"(train(ing)?_)?loss", re.IGNORECASE)


def throughput(metrics: Mapping[str, Json]) -> str | None:
    """Such as `812.4 images/s`, from a metric whose name suggests a throughput."""
    name = throughput_metric(metrics)
    if name is None:
        return None
    match = _THROUGHPUT.fullmatch(name)
    unit = match["unit"] if match else None
    return f"{metrics[name]:,.1f} {unit.lower()}/s" if unit else f"{metrics[name]:,.1f}/s"


def throughput_metric(metrics: Mapping[str, Json]) -> str | None:
    """The first metric whose name suggests a throughput."""
    # A copy: a view may call this from its own thread.
    found = list(metrics.items())
    return next((name for name, value in found if _THROUGHPUT.fullmatch(name) and is_number(value)), None)


def loss(metrics: Mapping[str, Json]) -> float | None:
    """The value of the first metric named loss; may be NaN or infinity."""
    name = loss_metric(metrics)
    value = None if name is None else metrics[name]
    return float(value) if isinstance(value, int | float | str) else None


def loss_metric(metrics: Mapping[str, Json]) -> str | None:
    """The name of that metric."""
    found = list(metrics.items())
    names = (name for name, value in found if _LOSS.fullmatch(name) and (is_number(value) or value in _NOT_FINITE))
    return next(names, None)


def figure(name: str, value: Json) -> str:
    """A metric's value in a few characters, with the unit that its name suggests."""
    if is_number(value) and name.endswith("_percent"):
        return f"{value:.4g}%"
    if is_number(value) and name.endswith(("_bytes", "_bytes_per_s")):
        return size(value) + ("/s" if name.endswith("_per_s") else "")
    return number(value)


def diverged(metrics: Mapping[str, Json]) -> str:
    """A message for a loss that is no longer a number; empty otherwise."""
    value = loss(metrics)
    return "" if value is None or isfinite(value) else f"the loss is {number(value)}: the training diverged"


def is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
