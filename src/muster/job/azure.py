"""Translates what Azure ML's files write differently from Muster's models: pure, before the models validate it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from muster.job.refusal import Path, Problem
from muster.job.sections import CONTAINER_ARGS_LEFT_OUT, SERVICES_LEFT_OUT, ignored_reason, is_harmless
from muster.wire.codec import Json

_OLDER_KINDS = ("commandjob", "commandcomponent")
_OLDER_REFERENCE = re.compile(r"(?<![${])\{(?P<kind>inputs|outputs)\.(?P<name>\w+)\}(?!\})")
_OLDER_TYPES = {"path": "uri_folder", "anydirectory": "uri_folder", "anyfile": "uri_file"}
_OLDER_SOURCES = {"data": None, "dataset": None, "file": "uri_file", "folder": "uri_folder"}
"""The keys for an input's path in the previews, and the type that each implied."""
_PLAIN_TYPES = ("string", "integer", "number", "boolean")
_INPUT_MODES = {"mount": "ro_mount", "rw_mount": "ro_mount", "eval_mount": "ro_mount", "eval_download": "download"}
_OUTPUT_MODES = {"mount": "rw_mount"}


@dataclass(frozen=True)
class Settled:
    """A job's data in Muster's vocabulary."""

    data: dict[str, Json]
    left_out: Mapping[Path, str] = field(default_factory=dict)
    """Keys that have no meaning here, with their purpose."""


def settle(data: Mapping[str, Json]) -> Settled:
    """The same job in Muster's vocabulary; what has no counterpart is left unchanged, for the models to refuse."""
    known = _component(data)
    spot = _mapping(known, "queue_settings").get("job_tier")
    kept = _without(known, (), known.get("command"))
    changed, left_out = dict(kept.data), dict(kept.left_out)
    if isinstance(spot, str) and spot.lower() == "spot":
        changed["queue_settings"] = {"preemptible": True, **_mapping(changed, "queue_settings")}
    if arguments := _mapping(changed, "resources").get("docker_args"):
        resources, dropped = _container_args(_mapping(changed, "resources"), arguments)
        changed["resources"] = resources
        if dropped:
            left_out[("resources", "docker_args")] = f"{dropped}: Muster itself decides that for its containers"
    if reason := _a_node_for_each_server(changed):
        # Alone, the number of workers sets the number of nodes.
        changed["resources"] = {k: v for k, v in _mapping(changed, "resources").items() if k != "instance_count"}
        left_out[("resources", "instance_count")] = reason
    for section, modes in (("inputs", _INPUT_MODES), ("outputs", _OUTPUT_MODES)):
        if items := _mapping(changed, section):
            is_output = section == "outputs"
            changed[section] = {name: _data(item, modes, is_output=is_output) for name, item in items.items()}
    if services := _mapping(known, "services"):
        found = {name: _service(item, known=services[name]) for name, item in _items(changed, "services")}
        changed["services"] = {name: item for name, item in found.items() if not _service_reason(item)}
        left_out |= {("services", name): reason for name, item in found.items() if (reason := _service_reason(item))}
    return replace(kept, data=changed, left_out=left_out)


def _a_node_for_each_server(data: Mapping[str, Json]) -> str:
    """Why a TensorFlow job holds fewer nodes than requested, if it also requests one for each parameter server."""
    described, nodes = _mapping(data, "distribution"), _mapping(data, "resources").get("instance_count")
    workers, servers = described.get("worker_count"), described.get("parameter_server_count")
    if str(described.get("type")).lower() != "tensorflow" or not isinstance(workers, int) or not servers:
        return ""
    if not isinstance(servers, int) or nodes != workers + servers:
        return ""
    return f"parameter servers share the nodes of workers, so {workers} are held"


def left_out_notice(settled: Settled, where: Mapping[Path, int] | None = None) -> str:
    """One notice about all keys that have no meaning here; empty if there are none."""
    if not settled.left_out:
        return ""
    parts = []
    for path, reason in settled.left_out.items():
        line = f", line {where[path]}" if where and path in where else ""
        parts.append(f"{Problem(path, '').key} ({reason}{line})")
    return f"left out, without a meaning here: {'; '.join(parts)}"


def older(data: Mapping[str, Json]) -> dict[str, Json]:
    """Files of the previews, translated to today's keys."""
    changed = dict(data)
    if isinstance(kind := data.get("type"), str) and kind.lower().replace("_", "") in _OLDER_KINDS:
        changed["type"] = "command"
    if isinstance(folder := _mapping(data, "code").get("local_path"), str):
        changed["code"] = folder
    compute = _mapping(data, "compute")
    if isinstance(target := compute.get("target"), str):
        changed["compute"] = target
        if "instance_count" in compute:
            changed["resources"] = {"instance_count": compute["instance_count"], **_mapping(data, "resources")}
    if environment := _mapping(data, "environment"):
        changed["environment"] = _older_environment(environment)
    if distribution := _mapping(data, "distribution"):
        changed["distribution"] = _older_distribution(distribution, _mapping(changed, "resources"))
    if items := _mapping(data, "inputs"):
        changed["inputs"] = {
            name: _older_source(item) if isinstance(item, Mapping) else item for name, item in items.items()
        }
    if "command" in data:
        changed["command"] = _older_references(data)
    return changed


def _older_environment(described: Mapping[str, Json]) -> dict[str, Json]:
    """`docker`, `conda` and `local_path` were separate sections."""
    known = {key: value for key, value in described.items() if key not in ("docker", "conda", "os")}
    docker, conda = _mapping(described, "docker"), _mapping(described, "conda")
    known |= {key: docker[key] for key in ("image", "build") if key in docker and key not in known}
    build = dict(_mapping(known, "build"))
    if "local_path" in build:
        build["path"] = build.pop("local_path")
    if isinstance(dockerfile := build.pop("dockerfile", None), str):
        folder, _, name = dockerfile.removeprefix("file:").rpartition("/")
        build = {"path": folder or ".", "dockerfile_path": name, **build}
    if build:
        known["build"] = {key: _plain_path(value) for key, value in build.items()}
    conda_file = known.get("conda_file") or conda.get("conda_dependencies_file") or conda.get("conda_dependencies")
    if conda_file:
        known["conda_file"] = _plain_path(conda_file)
    if "pip_requirements_file" in conda:
        known.setdefault("pip_requirements_file", _plain_path(conda["pip_requirements_file"]))
    return known


def _older_distribution(described: Mapping[str, Json], resources: Mapping[str, Json]) -> Mapping[str, Json]:
    """The number of processes was for the whole job."""
    total, nodes = described.get("process_count"), resources.get("instance_count", 1)
    if not isinstance(total, int) or not isinstance(nodes, int) or nodes < 1 or total % nodes:
        return described
    rest = {key: value for key, value in described.items() if key != "process_count"}
    return {"process_count_per_instance": total // nodes, **rest}


def _older_references(data: Mapping[str, Json]) -> Json:
    """`{inputs.x}` was the form of today's `${{inputs.x}}`."""

    def written(match: re.Match[str]) -> str:
        declared = _mapping(data, match["kind"])
        return f"${{{{{match['kind']}.{match['name']}}}}}" if match["name"] in declared else match[0]

    command = data.get("command")
    if isinstance(command, list):
        return [_OLDER_REFERENCE.sub(written, word) if isinstance(word, str) else word for word in command]
    return _OLDER_REFERENCE.sub(written, command) if isinstance(command, str) else command


def _plain_path(value: Json) -> Json:
    """A path without the prefix `file:` of the previews."""
    is_path = isinstance(value, str) and value.startswith("file:") and not value.startswith("file://")
    return value.removeprefix("file:") if is_path and isinstance(value, str) else value


def _component(data: Mapping[str, Json]) -> Mapping[str, Json]:
    """A component runs like a job: its name is not used for the run, since a run's name can be given only once."""
    schema = data.get("$schema")
    is_component = (isinstance(schema, str) and "component" in schema.lower()) or "is_deterministic" in data
    if not is_component and not ("version" in data and "name" in data):
        return data
    named = {**data, "display_name": data.get("display_name") or data.get("name")}
    return {key: value for key, value in named.items() if key != "name"}


def _without(data: Mapping[str, Json], path: Path, command: Json) -> Settled:
    """The data without harmless keys, and without those that have no meaning here."""
    kept: dict[str, Json] = {}
    left_out: dict[Path, str] = {}
    for key, value in data.items():
        here = (*path, key)
        if is_harmless(here):
            continue
        if (reason := ignored_reason(here)) and not _is_named(value, here, command):
            left_out[here] = reason
        elif isinstance(value, Mapping) and len(here) < 3:
            inner = _without(value, here, command)
            kept[key] = inner.data
            left_out |= inner.left_out
        else:
            kept[key] = value
    return Settled(kept, left_out)


def _is_named(value: Json, path: Path, command: Json) -> bool:
    """Whether the command uses the path on the node that a file chose for its data."""
    return path[-1] == "path_on_compute" and isinstance(value, str) and value.rstrip("/") in str(command)


def _data(item: Json, modes: Mapping[str, str], *, is_output: bool) -> Json:
    if not isinstance(item, Mapping):
        return item
    changed = dict(item)
    if isinstance(kind := changed.get("type"), str):
        known = _OLDER_TYPES.get(kind.lower(), kind.lower())
        # A plain value as a component's output is a file that contains it.
        changed["type"] = "uri_file" if is_output and known in _PLAIN_TYPES else known
    if isinstance(mode := item.get("mode"), str):
        changed["mode"] = modes.get(mode.lower(), mode)
    path = _plain_path(changed.get("path"))
    if path is not None:
        changed["path"] = path
    if isinstance(store := changed.get("datastore"), str) and isinstance(path, str):
        del changed["datastore"]
        changed["path"] = f"azureml://datastores/{store.removeprefix('azureml:')}/paths/{path.lstrip('/')}"
    return changed


def _older_source(item: Mapping[str, Json]) -> dict[str, Json]:
    """The path of an input was under `data`, `dataset`, `file` or `folder`, alone or in a list of one."""
    found = next((key for key in _OLDER_SOURCES if key in item), None)
    if found is None or "path" in item:
        return dict(item)
    value: Json = item[found]
    kind: Json = _OLDER_SOURCES[found]
    if isinstance(value, Mapping):
        paths = value.get("paths")
        inner = paths[0] if isinstance(paths, list) and len(paths) == 1 else value
        described = _older_source(inner) if isinstance(inner, Mapping) else {"path": inner}
        value, kind = described.get("path"), kind or described.get("type")
    if not isinstance(value, str):
        return dict(item)
    rest = {key: other for key, other in item.items() if key != found}
    if kind is None and "://" in value and "." in value.rpartition("/")[2]:
        kind = "uri_file"
    return {**({"type": kind} if kind else {}), **rest, "path": value}


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
    """Why a service has no meaning here; empty if it has one."""
    kind = item.get("type") if isinstance(item, Mapping) else None
    return SERVICES_LEFT_OUT.get(kind, "") if isinstance(kind, str) else ""


def _container_args(resources: Mapping[str, Json], given: Json) -> tuple[dict[str, Json], str]:
    """The resources with the arguments that a job may give its container, and the harmless others, left out."""
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
