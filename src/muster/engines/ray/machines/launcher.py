"""Cluster files for Ray's own launcher (`ray up FILE`) and for KubeRay, from a Muster cluster's description. Pure.

Every call writes what Muster decides: node kinds, how many, how long they stay idle, tuning, token, labels.
The user's own entries in an existing file (regions, images, keys, networks) stay unchanged.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass

from muster import errors
from muster.clusters.options import Options
from muster.engines.ray.machines.starting import (
    CLIENT_PORT,
    GCS_PORT,
    PATIENT,
    TOKEN,
    TUNING,
    redis_environment,
    token_environment,
)
from muster.version import VERSION
from muster.wire.codec import Json

PROVIDERS = ("azure", "aws", "gcp", "local", "kubernetes")
WORKERS = "muster_nodes"
_HEAD = "head"
_FOLDER = "/etc/muster-ray"
_LABEL = "muster-cluster"
_SIZES = {
    "azure": ("Standard_D4s_v5", "Standard_D8s_v5"),
    "aws": ("m5.xlarge", "m5.2xlarge"),
    "gcp": ("n1-standard-4", "n1-standard-8"),
}
"""For the head, and for workers whose cluster names no size."""
_KUBERNETES_NAME = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?")
_RAY_WITH_TOKENS = (2, 52)

Document = dict[str, Json]
"""A part of a YAML file in another program's format."""


@dataclass(frozen=True)
class Described:
    """A cluster to write a file for."""

    name: str
    options: Options
    provider: str
    region: str = ""
    hosts: tuple[str, ...] = ()
    """For the provider `local`: the head first."""
    user: str = ""
    token: str = ""
    """The file with the cluster's token, on the machine that runs the launcher."""
    redis: str = ""
    """`HOST:PORT` of the Redis in which the head keeps its tables; empty: in its memory."""
    ray: str = ""
    """For Kubernetes: the version of Ray in the image."""


def labels_of(name: str) -> dict[str, str]:
    """The Ray label that marks the nodes of a Muster cluster."""
    return {_LABEL: name}


def make_file(described: Described, known: Mapping[str, Json] | None = None) -> Document:
    """The cluster file, updated from the description; everything else in `known` stays."""
    if described.provider not in PROVIDERS:
        raise errors.JobError(f"there is no provider {described.provider!r}", f"Providers: {', '.join(PROVIDERS)}.")
    made = _kubernetes(described) if described.provider == "kubernetes" else _launcher(described)
    return _merged(copy.deepcopy(dict(known or {})), made)


def _launcher(described: Described) -> Document:
    options = described.options
    most = options.max_nodes or max(1, len(described.hosts) - 1)
    made: Document = {
        "cluster_name": described.name,
        "max_workers": most,
        "upscaling_speed": float(most),
        "idle_timeout_minutes": round(max(options.idle_seconds_before_scaledown, 1.0) / 60, 3),
        "provider": _provider(described),
        "auth": {"ssh_user": described.user or "ubuntu"},
        "file_mounts": {f"{_FOLDER}/{TOKEN}": described.token} if described.token else {},
        "setup_commands": [f"pip install 'muster-ml[ray]=={VERSION}'"],
        "head_start_ray_commands": [
            "ray stop",
            f"{_environment(described, head=True)} ray start --head --port={GCS_PORT} "
            f"--ray-client-server-port={CLIENT_PORT} --autoscaling-config=~/ray_bootstrap_config.yaml "
            "--disable-usage-stats",
        ],
        "worker_start_ray_commands": [
            "ray stop",
            f"{_environment(described, head=False)} ray start --address=$RAY_HEAD_IP:{GCS_PORT} "
            f"--labels={_LABEL}={described.name} --disable-usage-stats",
        ],
    }
    if described.provider != "local":
        made["head_node_type"] = _HEAD
        head: Document = {"resources": {"CPU": 0}, "node_config": _machine(described, head=True), "max_workers": 0}
        workers: Document = {
            "min_workers": options.min_nodes,
            "max_workers": most,
            "resources": _resources(options),
            "labels": labels_of(described.name),
            "node_config": _machine(described, head=False),
        }
        made["available_node_types"] = {_HEAD: head, WORKERS: workers}
    return made


def _provider(described: Described) -> Document:
    kind = described.provider
    if kind == "local":
        if not described.hosts:
            raise errors.JobError("the provider local needs hosts", "Give --host for each machine, the head first.")
        return {"type": "local", "head_ip": described.hosts[0], "worker_ips": list(described.hosts[1:])}
    region = "location" if kind == "azure" else "region"
    return {"type": kind, **({region: described.region} if described.region else {})}


def _machine(described: Described, head: bool) -> Document:
    """The machine type in its cloud's terms; the head is small."""
    of_head, of_worker = _SIZES[described.provider]
    size = of_head if head else described.options.vm_size or of_worker
    spot = described.options.vm_priority == "lowpriority" and not head
    if described.provider == "azure":
        azure_spot: Document = {"priority": "Spot", "billingProfile": {"maxPrice": -1}}
        return {"azure_arm_parameters": {"vmSize": size, **(azure_spot if spot else {})}}
    if described.provider == "aws":
        return {"InstanceType": size, **({"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {})}
    return {"machineType": size, **({"scheduling": [{"preemptible": True}]} if spot else {})}


def _resources(options: Options) -> dict[str, int]:
    known = {"CPU": options.cpus_of_node, "GPU": options.gpus_of_node}
    return {name: count for name, count in known.items() if count}


def _kubernetes(described: Described) -> Document:
    """A RayCluster for KubeRay 1.5.1 or newer, which creates the token itself."""
    options = described.options
    _refuse_impossible(described)
    has = _resources(options)
    limits = {"cpu": str(has.get("CPU", 1)), "memory": f"{int(options.memory_gb or 4)}Gi"}
    if has.get("GPU"):
        limits["nvidia.com/gpu"] = str(has["GPU"])
    workers: Document = {
        "groupName": WORKERS.replace("_", "-"),
        "replicas": options.min_nodes,
        "minReplicas": options.min_nodes,
        "maxReplicas": options.max_nodes or max(1, options.min_nodes),
        "rayStartParams": {},
        "labels": labels_of(described.name),
        "template": _pod(described, "ray-worker", limits),
    }
    head: Document = {
        "rayStartParams": {"num-cpus": "0"},
        "template": _pod(described, "ray-head", {"cpu": "2", "memory": "4Gi"}),
    }
    spec: Document = {
        "rayVersion": described.ray,
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"idleTimeoutSeconds": int(options.idle_seconds_before_scaledown)},
        "authOptions": {"mode": "token"},
        "headGroupSpec": head,
        "workerGroupSpecs": [workers],
    }
    if described.redis:
        kept_in: Document = {"redisAddress": described.redis, "externalStorageNamespace": described.name}
        spec["gcsFaultToleranceOptions"] = kept_in
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": described.name}, "spec": spec}


def _refuse_impossible(described: Described) -> None:
    """Refuse what KubeRay's operator would refuse, or only mention in its log."""
    if not _KUBERNETES_NAME.fullmatch(described.name):
        raise errors.JobError(
            f"{described.name!r} cannot be the name of a RayCluster",
            "Kubernetes takes at most 50 small letters, digits and dashes, a letter first and no dash at the end.",
        )
    options = described.options
    if options.max_nodes and options.min_nodes > options.max_nodes:
        raise errors.JobError(
            f"min_nodes is {options.min_nodes}, above max_nodes {options.max_nodes}", "Raise max_nodes."
        )
    given = tuple(int(part) for part in re.findall(r"\d+", described.ray)[:2])
    if given < _RAY_WITH_TOKENS:
        raise errors.JobError(
            f"the version of Ray in the image is {described.ray or 'not known'}; tokens need 2.52 or newer",
            "Give it with --ray-version, as in the image.",
        )


def _pod(described: Described, name: str, limits: Mapping[str, str]) -> Document:
    # The operator itself gives the head the address of Redis.
    tuning = TUNING | (PATIENT if described.redis else {})
    environment: list[Json] = [{"name": key, "value": value} for key, value in tuning.items()]
    resources: Document = {"limits": dict(limits), "requests": dict(limits)}
    container: Document = {"name": name, "image": f"muster-ray:{VERSION}", "env": environment, "resources": resources}
    spec: Document = {"containers": [container]}
    return {"spec": spec}


def _environment(described: Described, head: bool) -> str:
    found = TUNING | token_environment(f"{_FOLDER}/{TOKEN}")
    if described.redis:
        found |= PATIENT | (redis_environment(described.redis, described.name) if head else {})
    return " ".join(f"{name}={value}" for name, value in found.items())


def _merged(known: Document, made: Mapping[str, Json]) -> Document:
    """Ours over theirs, key by key; items of lists by their names. An existing image stays."""
    for key, value in made.items():
        old = known.get(key)
        if key == "image" and old:
            continue
        if isinstance(old, dict) and isinstance(value, Mapping):
            known[key] = _merged(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            known[key] = _merged_list(old, value)
        else:
            known[key] = value
    return known


def _merged_list(known: list[Json], made: list[Json]) -> list[Json]:
    """Items with names are merged one by one, and those that only `known` has stay; other lists are replaced."""
    ours = {name: item for item in made if isinstance(item, dict) and (name := _name_of(item))}
    if len(ours) < len(made) or not made:
        return made
    found: list[Json] = []
    for item in known:
        new = ours.pop(_name_of(item), None) if isinstance(item, dict) else None
        found.append(_merged(item, new) if isinstance(item, dict) and new is not None else item)
    return [*found, *ours.values()]


def _name_of(item: Document) -> str:
    return next((str(item[key]) for key in ("name", "groupName") if key in item), "")
