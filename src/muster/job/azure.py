"""What Azure ML's files say in another way than Muster's models: pure, and before the models see it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.job.refusal import Path, Problem
from muster.job.sections import CONTAINER_ARGS_LEFT_OUT, SERVICES_LEFT_OUT, ignored_reason, is_harmless
from muster.wire.codec import Json

_INPUT_MODES = {"mount": "ro_mount", "rw_mount": "ro_mount", "eval_mount": "ro_mount", "eval_download": "download"}
_OUTPUT_MODES = {"mount": "rw_mount"}


@dataclass(frozen=True)
class Settled:
    """A job's data in Muster's words."""

    data: dict[str, Json]
    left_out: Mapping[Path, str] = field(default_factory=dict)
    """Keys that have no meaning here, and what they are for."""


def settle(data: Mapping[str, Json]) -> Settled:
    """The same job in Muster's words; what cannot be said in them is left as it is, for the models to refuse."""
    known = _component(_older(data))
    spot = _mapping(known, "queue_settings").get("job_tier")
    kept = _without(known, ())
    changed, left_out = dict(kept.data), dict(kept.left_out)
    if isinstance(spot, str) and spot.lower() == "spot":
        changed["queue_settings"] = {"preemptible": True, **_mapping(changed, "queue_settings")}
    if arguments := _mapping(changed, "resources").get("docker_args"):
        resources, dropped = _container_args(_mapping(changed, "resources"), arguments)
        changed["resources"] = resources
        if dropped:
            left_out[("resources", "docker_args")] = f"{dropped}: Muster itself decides that for its containers"
    for section, modes in (("inputs", _INPUT_MODES), ("outputs", _OUTPUT_MODES)):
        if items := _mapping(changed, section):
            changed[section] = {name: _data(item, modes) for name, item in items.items()}
    if services := _mapping(known, "services"):
        found = {name: _service(item, known=services[name]) for name, item in _items(changed, "services")}
        changed["services"] = {name: item for name, item in found.items() if not _service_reason(item)}
        left_out |= {("services", name): reason for name, item in found.items() if (reason := _service_reason(item))}
    return replace(kept, data=changed, left_out=left_out)


def left_out_notice(settled: Settled, where: Mapping[Path, int] | None = None) -> str:
    """The one notice about all that has no meaning here; empty where everything has."""
    if not settled.left_out:
        return ""
    parts = []
    for path, reason in settled.left_out.items():
        line = f", line {where[path]}" if where and path in where else ""
        parts.append(f"{Problem(path, '').key} ({reason}{line})")
    return f"left out, without a meaning here: {'; '.join(parts)}"


def _older(data: Mapping[str, Json]) -> Mapping[str, Json]:
    """What files of the preview said in other words."""
    changed = dict(data)
    if isinstance(folder := _mapping(data, "code").get("local_path"), str):
        changed["code"] = folder
    compute = _mapping(data, "compute")
    if isinstance(target := compute.get("target"), str):
        changed["compute"] = target
        if "instance_count" in compute:
            changed["resources"] = {"instance_count": compute["instance_count"], **_mapping(data, "resources")}
    environment = _mapping(data, "environment")
    if isinstance(image := _mapping(environment, "docker").get("image"), str):
        rest = {key: value for key, value in environment.items() if key != "docker"}
        changed["environment"] = {"image": image, **rest}
    return changed


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
    left_out: dict[Path, str] = {}
    for key, value in data.items():
        here = (*path, key)
        if is_harmless(here):
            continue
        if reason := ignored_reason(here):
            left_out[here] = reason
        elif isinstance(value, Mapping) and len(here) < 3:
            inner = _without(value, here)
            kept[key] = inner.data
            left_out |= inner.left_out
        else:
            kept[key] = value
    return Settled(kept, left_out)


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


def _service_reason(item: Json) -> str:
    """Why a service has no meaning here; empty where it has one."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    return SERVICES_LEFT_OUT.get(kind, "") if isinstance(kind, str) else ""


def _container_args(resources: Mapping[str, Json], given: Json) -> tuple[dict[str, Json], str]:
    """The resources with those arguments that a job may give its container, and the others that do no harm."""
    try:
        text = " ".join(map(str, given)) if isinstance(given, list | tuple) else str(given)
        words = shlex.split(text)
    except ValueError:
        return {**resources, "docker_args": given}, ""
    kept: list[str] = []
    dropped: list[str] = []
    changed = dict(resources)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name not in CONTAINER_ARGS_LEFT_OUT:
            kept.append(word)
            continue
        if CONTAINER_ARGS_LEFT_OUT[name] and not equals and words:
            value = words.pop(0)
            word = f"{word} {value}"
        if name == "--shm-size":
            changed.setdefault("shm_size", value)
        else:
            dropped.append(word)
    return {**changed, "docker_args": shlex.join(kept) or None}, " ".join(dropped)


def _mapping(data: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _items(data: Mapping[str, Json], key: str) -> Iterable[tuple[str, Json]]:
    return _mapping(data, key).items()
