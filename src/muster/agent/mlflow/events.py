"""Translates logging calls into the events that the in-run API would have written. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from muster.wire.codec import Json

Event = dict[str, str | int | float | None]
_MOST = {"metrics": 1000, "params": 100, "tags": 100}
_KEY_LENGTH = 250
_VALUE_LENGTH = 100_000
_LARGEST = (1 << 63) - 1


class Refused(ValueError):
    """A call that MLflow's own server would also refuse."""


def of_call(call: str, body: Mapping[str, Json], now: float) -> list[Event] | None:
    """The events of a call such as `runs/log-metric`; None for a call that logs nothing."""
    if call == "runs/log-metric":
        return [_metric(body, now)]
    if call == "runs/log-parameter":
        return [_label("param", body, now)]
    if call == "runs/set-tag":
        return [_label("tag", body, now)]
    if call == "runs/log-batch":
        metrics, params, tags = (_items(body, part) for part in ("metrics", "params", "tags"))
        return [
            *(_metric(item, now) for item in metrics),
            *(_label("param", item, now) for item in params),
            *(_label("tag", item, now) for item in tags),
        ]
    return None


def names_a_model(body: Mapping[str, Json]) -> bool:
    """Whether metrics are linked to a model: they may have been logged already, which only the server knows."""
    metrics = body.get("metrics")
    items = metrics if isinstance(metrics, list) else [body]
    return any(isinstance(item, Mapping) and item.get("model_id") for item in items)


def _items(body: Mapping[str, Json], part: str) -> list[Mapping[str, Json]]:
    found = body.get(part) or []
    if not isinstance(found, Sequence) or not all(isinstance(item, Mapping) for item in found):
        raise Refused(f"'{part}' must be a list of objects")
    if len(found) > _MOST[part]:
        raise Refused(f"A batch has at most {_MOST[part]} {part}, not {len(found)}")
    return [item for item in found if isinstance(item, Mapping)]


def _metric(item: Mapping[str, Json], now: float) -> Event:
    return {
        "kind": "metric",
        "type": "scalar",
        "name": _key(item),
        "value": _number(item),
        "step": _whole(item.get("step"), "step", 0),
        "at": _whole(item.get("timestamp"), "timestamp", int(now * 1000)) / 1000,
    }


def _label(kind: str, item: Mapping[str, Json], now: float) -> Event:
    value = item.get("value")
    text = "" if value is None else str(value)
    if len(text) > _VALUE_LENGTH:
        raise Refused(
            f"the value of {_key(item)!r} has {len(text):,} characters, and at most {_VALUE_LENGTH:,} are kept"
        )
    return {"kind": kind, "name": _key(item), "value": text, "at": now}


def _key(item: Mapping[str, Json]) -> str:
    key = item.get("key")
    if not isinstance(key, str) or not key:
        raise Refused("Missing value for required parameter 'key'")
    if len(key) > _KEY_LENGTH:
        raise Refused(f"a key has at most {_KEY_LENGTH} characters, not {len(key)}")
    return key


def _number(item: Mapping[str, Json]) -> float | str:
    try:
        value = float(item.get("value"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Refused(f"the value of metric {_key(item)!r} is not a number") from None
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _whole(value: Json, name: str, default: int) -> int:
    """A whole number; clients in other languages send 64-bit numbers as text."""
    try:
        found = default if value is None or value == "" else int(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        raise Refused(f"'{name}' must be a whole number") from None
    if abs(found) > _LARGEST:
        raise Refused(f"'{name}' must be at most {_LARGEST}")
    return found
