"""What Azure ML's files say in another way than Muster's models: pure, and before the models see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from muster.job.refusal import Path, Problem
from muster.job.sections import ignored_reason, is_harmless
from muster.wire.codec import Json

_INPUT_MODES = {"mount": "ro_mount", "rw_mount": "ro_mount", "eval_mount": "ro_mount", "eval_download": "download"}
_OUTPUT_MODES = {"mount": "rw_mount"}


@dataclass(frozen=True)
class Settled:
    """A job's data in Muster's words."""

    data: dict[str, Json]
    left_out: tuple[Path, ...] = ()
    """Keys that have no meaning here."""


def settle(data: Mapping[str, Json]) -> Settled:
    """The same job in Muster's words; what cannot be said in them is left as it is, for the models to refuse."""
    known = _component(data)
    spot = _mapping(known, "queue_settings").get("job_tier")
    kept = _without(known, ())
    changed = dict(kept.data)
    if isinstance(spot, str) and spot.lower() == "spot":
        changed["queue_settings"] = {"preemptible": True, **_mapping(changed, "queue_settings")}
    if isinstance(arguments := _mapping(changed, "resources").get("docker_args"), list | tuple):
        changed["resources"] = {**_mapping(changed, "resources"), "docker_args": " ".join(map(str, arguments))}
    for section, modes in (("inputs", _INPUT_MODES), ("outputs", _OUTPUT_MODES)):
        if items := _mapping(changed, section):
            changed[section] = {name: _data(item, modes) for name, item in items.items()}
    if services := _mapping(known, "services"):
        changed["services"] = {name: _service(item, known=services[name]) for name, item in _items(changed, "services")}
    return replace(kept, data=changed)


def left_out_notice(settled: Settled, where: Mapping[Path, int] | None = None) -> str:
    """The one notice about all that has no meaning here; empty where everything has."""
    if not settled.left_out:
        return ""
    parts = []
    for path in settled.left_out:
        line = f", line {where[path]}" if where and path in where else ""
        parts.append(f"{Problem(path, '').key} ({ignored_reason(path)}{line})")
    return f"left out, without a meaning here: {'; '.join(parts)}"


def _component(data: Mapping[str, Json]) -> Mapping[str, Json]:
    """A component runs like a job: its name is not a run's, which could be given only once."""
    schema = data.get("$schema")
    is_component = (isinstance(schema, str) and "component" in schema.lower()) or "is_deterministic" in data
    if not is_component and not ("version" in data and "name" in data):
        return data
    named = {**data, "display_name": data.get("display_name") or data.get("name")}
    return {key: value for key, value in named.items() if key != "name"}


def _without(data: Mapping[str, Json], path: Path) -> Settled:
    """The data without keys that are harmless, and without those that have no meaning here."""
    kept: dict[str, Json] = {}
    left_out: list[Path] = []
    for key, value in data.items():
        here = (*path, key)
        if is_harmless(here):
            continue
        if ignored_reason(here):
            left_out.append(here)
        elif isinstance(value, Mapping) and len(here) < 3:
            inner = _without(value, here)
            kept[key] = inner.data
            left_out += inner.left_out
        else:
            kept[key] = value
    return Settled(kept, tuple(left_out))


def _data(item: Json, modes: Mapping[str, str]) -> Json:
    if not isinstance(item, Mapping):
        return item
    changed = dict(item)
    if isinstance(mode := item.get("mode"), str):
        changed["mode"] = modes.get(mode.lower(), mode)
    path = item.get("path")
    if isinstance(path, str) and path.startswith("file:") and not path.startswith("file://"):
        changed["path"] = path = path.removeprefix("file:")
    if isinstance(store := changed.get("datastore"), str) and isinstance(path, str):
        del changed["datastore"]
        changed["path"] = f"azureml://datastores/{store.removeprefix('azureml:')}/paths/{path.lstrip('/')}"
    return changed


def _service(item: Json, known: Json) -> Json:
    if not isinstance(item, Mapping) or not isinstance(known, Mapping):
        return item
    changed = {key: value for key, value in item.items() if key != "job_service_type"}
    kind = item.get("type") or item.get("job_service_type")
    if isinstance(kind, str):
        changed["type"] = {"tensorboard": "tensor_board", "jupyterlab": "jupyter_lab"}.get(kind.lower(), kind.lower())
    log_dir = _mapping(known, "properties").get("logDir")
    return {"log_dir": log_dir, **changed} if log_dir else changed


def _mapping(data: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _items(data: Mapping[str, Json], key: str) -> Iterable[tuple[str, Json]]:
    return _mapping(data, key).items()
