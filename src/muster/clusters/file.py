"""Cluster files (YAML): Muster's own settings, and the compute files of Azure ML as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from muster import errors
from muster.clusters.options import parse_options
from muster.wire.codec import Json

# Azure ML's names, and the names here.
_RENAMED = {
    "size": "vm_size",
    "min_instances": "min_nodes",
    "max_instances": "max_nodes",
    "idle_time_before_scale_down": "idle_seconds_before_scaledown",
    "tier": "vm_priority",
}
_IGNORED = {
    "$schema": "names an editor's schema",
    "type": "",
    "location": "names a region of Azure",
    "identity": "names an identity of Azure",
    "ssh_public_access_enabled": "opens Azure's machines to ssh",
    "ssh_settings": "describes users of Azure's machines",
    "enable_node_public_ip": "",
    "id": "is an identifier of Azure",
    "provisioning_state": "is a record of Azure",
    "resource_group": "names a resource group of Azure",
    "created_on": "is a record of Azure",
}
_TYPES = ("amlcompute", "cluster")
_BATCH_AI = {"vmSize": "vm_size", "vmPriority": "vm_priority"}


@dataclass(frozen=True)
class ClusterFile:
    """A cluster as a file describes it."""

    name: str | None
    engine: str
    options: dict[str, Json]
    notices: list[str] = field(default_factory=list)


def load_cluster_file(path: Path) -> ClusterFile:
    """Read a cluster file; errors name the file."""
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise errors.JobError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise errors.JobError(f"{path} holds no mapping", "Write keys such as `name:` and `max_nodes:`.")
    return parse_cluster(data, str(path))


def parse_cluster(data: Mapping[str, Json], source: str = "the cluster file") -> ClusterFile:
    """A cluster from a mapping; keys that only a cloud understands are ignored with a notice."""
    given = _of_batch_ai(data)
    kind = str(given.get("type", "amlcompute")).lower()
    if kind not in _TYPES:
        raise errors.JobError(f"{source}: type {kind!r} is not a cluster", f"Types here: {', '.join(_TYPES)}.")
    notices = [f"{key} {why} and is not used" for key, why in _IGNORED.items() if key in given and why]
    for key in _IGNORED:
        given.pop(key, None)
    name, engine = given.pop("name", None), str(given.pop("engine", "local"))
    network = given.pop("network_settings", None)
    network = network if isinstance(network, Mapping) else {}
    given |= {new: network[old] for old, new in (("vnet_name", "vnet"), ("subnet", "subnet")) if network.get(old)}
    for old, new in _RENAMED.items():
        if old in given:
            if new in given:
                raise errors.JobError(f"{source} gives both {old} and {new}", "They mean the same: leave one out.")
            given[new] = given.pop(old)
    parse_options(given)
    return ClusterFile(str(name) if name else None, engine, given, notices)


def _of_batch_ai(data: Mapping[str, Json]) -> dict[str, Json]:
    """A cluster of Batch AI in Muster's words; anything else unchanged."""
    properties = data.get("properties")
    inner = properties if isinstance(properties, Mapping) else data
    scale = inner.get("scaleSettings")
    if not isinstance(scale, Mapping):
        return dict(data)
    made: dict[str, Json] = {key: data[key] for key in ("name", "engine") if key in data}
    made |= {new: inner[old] for old, new in _BATCH_AI.items() if inner.get(old) is not None}
    manual, auto = scale.get("manual"), scale.get("autoScale")
    if isinstance(manual, Mapping):
        made |= {"min_nodes": manual.get("targetNodeCount"), "max_nodes": manual.get("targetNodeCount")}
    if isinstance(auto, Mapping):
        made |= {"min_nodes": auto.get("minimumNodeCount"), "max_nodes": auto.get("maximumNodeCount")}
    setup = inner.get("nodeSetup")
    task = setup.get("setupTask") if isinstance(setup, Mapping) else None
    if isinstance(task, Mapping) and task.get("commandLine"):
        made["setup"] = task["commandLine"]
    volumes = setup.get("mountVolumes") if isinstance(setup, Mapping) else None
    if isinstance(volumes, Mapping) and (mounts := list(_mounts(volumes))):
        made["mounts"] = mounts
    return made


def _mounts(volumes: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """The volumes of Batch AI's clusters: storage is named by a datastore with the name of its mount."""
    for kind, items in volumes.items():
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, Mapping):
                continue
            target = str(item.get("relativeMountPath") or "").strip("/")
            if kind == "fileServers":
                server = item.get("fileServer")
                path = str(server.get("id") if isinstance(server, Mapping) else "")
                yield {"source": f"fileserver:{path.rstrip('/').rpartition('/')[2]}", "target": target}
            elif kind in ("azureFileShares", "azureBlobFileSystems"):
                yield {"source": f"azureml://datastores/{target}", "target": target}
            else:
                yield {"source": _share_of(str(item.get("mountCommand") or kind)), "target": target}


def _share_of(command: str) -> str:
    """The share of a mount command, such as `mount -t nfs4 HOST:/EXPORT $AZ_BATCHAI_MOUNT_ROOT/x`."""
    return next((word for word in command.split() if ":/" in word and not word.startswith("-")), command)
