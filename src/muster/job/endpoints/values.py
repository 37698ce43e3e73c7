"""Values of these files: numbers, durations, mappings of texts; each error names its key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.errors import JobError
from muster.job.refusal import nearest
from muster.wire.codec import Json

_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")


def refuse(file: Path, key: str, why: str, hint: str) -> JobError:
    """An error that names the file and the key."""
    return JobError(f"{file}: {key}: {why}", hint)


def section(file: Path, values: Mapping[str, Json], key: str, keys: Sequence[str]) -> Mapping[str, Json]:
    """A mapping under a key, with only these keys; empty if there is none."""
    found = values.get(key.rpartition(".")[2])
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise refuse(file, key, f"{found!r} is no mapping", f"Write its keys below it: {', '.join(keys)}.")
    for name in found:
        if name not in keys:
            raise refuse(
                file, f"{key}.{name}", "there is no such key", f"{nearest(name, keys)}Keys: {', '.join(keys)}."
            )
    return found


def whole(file: Path, key: str, given: Json, default: int, least: int = 0, most: int | None = None) -> int:
    """A whole number, also given as text."""
    value = default if given is None else given
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        allowed = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise refuse(
            file, key, f"{given!r} is no whole number {allowed}", f"Write {key.rpartition('.')[2]}: {default}."
        )
    return value


def seconds(file: Path, key: str, given: Json, default: float) -> float:
    """A number of seconds, also given as an ISO 8601 duration such as PT10S."""
    if given is None:
        return default
    found = _DURATION.fullmatch(given) if isinstance(given, str) else None
    if found is not None and any(found.groups()):
        hours, minutes, rest = (float(part or 0) for part in found.groups())
        return hours * 3600 + minutes * 60 + rest
    if isinstance(given, bool) or not isinstance(given, int | float) or given < 0:
        raise refuse(file, key, f"{given!r} is no number of seconds", f"Write {key.rpartition('.')[2]}: {default:g}.")
    return float(given)


def flag(file: Path, key: str, given: Json, default: bool) -> bool:
    if given is None:
        return default
    if not isinstance(given, bool):
        raise refuse(file, key, f"{given!r} is neither true nor false", f"Write {key}: {str(default).lower()}.")
    return given


def texts(file: Path, key: str, values: Mapping[str, Json]) -> dict[str, str]:
    """A mapping of texts."""
    found = values.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise refuse(file, key, f"{found!r} is no mapping", f"Write NAME: VALUE lines below {key}.")
    return {name: str(value) for name, value in found.items()}


def mappings(file: Path, key: str, given: Json) -> dict[str, Mapping[str, Json]]:
    """A mapping of mappings; empty if there is none."""
    if given is not None and not isinstance(given, Mapping):
        raise refuse(file, key, f"{given!r} is no mapping", "Write its names below it.")
    found = {}
    for name, value in (given or {}).items():
        if not isinstance(value, Mapping):
            raise refuse(file, f"{key}.{name}", f"{value!r} is no mapping", "Write its keys below it.")
        found[name] = value
    return found


def shares(file: Path, key: str, values: Mapping[str, Json]) -> dict[str, int]:
    """Shares in percent, by deployment."""
    found = values.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise refuse(file, key, f"{found!r} is no mapping", "Write DEPLOYMENT: PERCENT lines below it.")
    return {name: whole(file, f"{key}.{name}", value, 0, 0, 100) for name, value in (found or {}).items()}
