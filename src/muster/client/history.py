"""The history of metrics as records: each value with its step, its time and its rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from muster.wire.codec import Json
from muster.wire.runs import MetricSeries

_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class MetricRecord(NamedTuple):
    """One value that was logged."""

    name: str
    step: float | None
    time: float
    """Seconds of the epoch."""
    rank: int | None
    """None: logged by a node or by a client."""
    attempt: int
    value: Json


def records(series: Iterable[MetricSeries], rank: int | None = None, attempt: int | None = None) -> list[MetricRecord]:
    """Points in order of arrival, of all ranks and attempts or of one."""
    found = [
        (order, MetricRecord(one.name, step, at, one.rank, one.attempt, _number(value, one.type)))
        for one in series
        if rank in (None, one.rank) and attempt in (None, one.attempt)
        for order, step, at, value in zip(one.order, one.steps, one.at, one.values, strict=True)
    ]
    return [record for _, record in sorted(found, key=lambda item: item[0])]


def _number(value: Json, kind: str) -> Json:
    """The value as a number, also where JSON lacks it."""
    return _NUMBERS.get(value, value) if kind == "scalar" and isinstance(value, str) else value
