"""Machines for Ray: commands for given hosts, their secrets, and files for Ray's own launcher."""

from __future__ import annotations

import json
import shlex
import ssl
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from muster import errors
from muster.clusters.options import parse_options
from muster.engines.ray.machines import certificates
from muster.engines.ray.machines.launcher import WORKERS, Described, make_file
from muster.engines.ray.machines.starting import SECRETS, Host, Setup, command

SETUP = Setup([Host("10.0.0.1", "me@10.0.0.1"), Host("10.0.0.2")], ".muster/ray/many")


def test_the_head_is_started_with_a_token_tls_and_quick_failure_detection():
    words = shlex.split(command(SETUP, SETUP.hosts[0]))
    environment = dict(word.split("=", 1) for word in words[1 : words.index("ray")])
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_USE_TLS"] == "1"
    assert environment["RAY_health_check_failure_threshold"] == "3"
    assert words[words.index("ray") :] == [
        "ray", "start", "--node-ip-address=10.0.0.1", "--head", "--port=6379", "--ray-client-server-port=10001",
        "--include-dashboard=false", "--disable-usage-stats",
    ]  # fmt: skip


def test_the_others_join_the_head():
    words = shlex.split(command(SETUP, SETUP.hosts[1]))
    assert "--address=10.0.0.1:6379" in words
    assert "--head" not in words


def test_no_secret_is_on_a_command_line(tmp_path: Path):
    certificates.make(tmp_path, ["10.0.0.1"])
    for name in SECRETS:
        assert (tmp_path / name).read_text().strip() not in command(SETUP, SETUP.hosts[0])
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_the_certificate_is_good_for_its_authority(tmp_path: Path):
    certificates.make(tmp_path, ["10.0.0.1", "head.example"])
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    context.load_cert_chain(tmp_path / "node.crt", tmp_path / "node.key")


def test_a_token_that_is_there_stays(tmp_path: Path):
    certificates.make(tmp_path, ["10.0.0.1"])
    first = (tmp_path / "token").read_text()
    certificates.make(tmp_path, ["10.0.0.1", "10.0.0.2"])
    assert (tmp_path / "token").read_text() == first


def described(provider: str, **given: object) -> Described:
    options = {"vm_size": "Standard_NC6s_v3", "min_nodes": 1, "max_nodes": 4, "idle_seconds_before_scaledown": 300}
    return Described("many", parse_options({**options, **given}), provider, region="westeurope", hosts=("a", "b"))


@pytest.mark.parametrize(
    ("provider", "place", "machine"),
    [
        ("azure", {"type": "azure", "location": "westeurope"},
         {"azure_arm_parameters":
          {"vmSize": "Standard_NC6s_v3", "priority": "Spot", "billingProfile": {"maxPrice": -1}}}),
        ("aws", {"type": "aws", "region": "westeurope"},
         {"InstanceType": "Standard_NC6s_v3", "InstanceMarketOptions": {"MarketType": "spot"}}),
        ("gcp", {"type": "gcp", "region": "westeurope"},
         {"machineType": "Standard_NC6s_v3", "scheduling": [{"preemptible": True}]}),
    ],
)  # fmt: skip
def test_a_clouds_file_says_what_the_cluster_says(provider: str, place: object, machine: object):
    made = make_file(described(provider, vm_priority="lowpriority"))
    assert made["provider"] == place
    assert made["max_workers"] == 4
    assert made["idle_timeout_minutes"] == 5.0
    workers = made["available_node_types"][WORKERS]
    assert (workers["min_workers"], workers["max_workers"]) == (1, 4)
    assert workers["resources"] == {"CPU": 6, "GPU": 1}
    assert workers["node_config"] == machine
    assert "RAY_AUTH_MODE=token" in made["head_start_ray_commands"][1]


def test_given_hosts_are_a_local_provider():
    assert make_file(described("local"))["provider"] == {"type": "local", "head_ip": "a", "worker_ips": ["b"]}


def raycluster(name: str = "many", ray: str = "2.60.0", redis: str = "", **given: object) -> Described:
    return replace(described("kubernetes", **given), name=name, ray=ray, redis=redis)


def refusals(made: object) -> list[str]:
    """What KubeRay would have against a resource; see the schema for what it covers."""
    schema = json.loads(Path(__file__).with_name("raycluster.schema.json").read_text())
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(made)]


def test_kubernetes_gets_a_raycluster():
    made = make_file(raycluster(memory_gb=32))
    group = made["spec"]["workerGroupSpecs"][0]
    assert (made["kind"], group["minReplicas"], group["maxReplicas"]) == ("RayCluster", 1, 4)
    assert group["labels"] == {"muster-cluster": "many"}
    assert made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] == 300
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "6", "memory": "32Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "wanted",
    [
        raycluster(),
        raycluster(redis="redis:6379"),
        raycluster(ray="3.0.0", vm_size=None, cpus=8, gpus=0, memory_gb=2.5, min_nodes=3, max_nodes=None),
    ],
)
def test_kuberay_has_nothing_against_what_is_written(wanted: Described):
    made = make_file(wanted)
    assert refusals(made) == []
    # As YAML it is the same, numbers and texts kept apart.
    assert refusals(yaml.safe_load(yaml.safe_dump(made))) == []
    assert refusals(make_file(wanted, made)) == []


def test_the_schema_knows_what_kuberay_refuses():
    made = make_file(raycluster())
    made["spec"]["workerGroupSpecs"][0]["rayStartParams"]["labels"] = "a=b"
    made["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    del made["spec"]["rayVersion"]
    said = "\n".join(refusals(made))
    assert "'rayVersion' is a required property" in said
    assert "headGroupSpec.rayStartParams['num-cpus']: 0 is not of type 'string'" in said
    assert "workerGroupSpecs[0].rayStartParams.labels: " in said or "workerGroupSpecs[0].rayStartParams: " in said


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (raycluster(name="Many_1"), "'Many_1' cannot be the name of a RayCluster"),
        (raycluster(name="m" * 51), "cannot be the name"),
        (raycluster(ray=""), "not known; tokens need 2.52"),
        (raycluster(ray="2.51.1"), "is 2.51.1; tokens need 2.52"),
    ],
)
def test_what_kuberay_would_refuse_is_refused_before_it_is_written(wanted: Described, said: str):
    with pytest.raises(errors.JobError, match=said):
        make_file(wanted)


def test_a_raycluster_that_is_there_keeps_images_volumes_and_groups_of_the_users_own():
    first = make_file(raycluster())
    spec = first["spec"]
    pod = spec["workerGroupSpecs"][0]["template"]["spec"]
    pod["containers"][0]["image"] = "registry.site/ray:1"
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    pod["containers"][0]["env"].append({"name": "MINE", "value": "1"})
    spec["workerGroupSpecs"].append({**spec["workerGroupSpecs"][0], "groupName": "own"})
    again = make_file(raycluster(max_nodes=9, redis="redis:6379"), first)
    ours, own = again["spec"]["workerGroupSpecs"]
    assert (ours["maxReplicas"], own["groupName"], own["maxReplicas"]) == (9, "own", 4)
    container = ours["template"]["spec"]["containers"][0]
    assert (container["image"], container["volumeMounts"][0]["mountPath"]) == ("registry.site/ray:1", "/data")
    environment = {item["name"]: item["value"] for item in container["env"]}
    assert environment["MINE"] == "1"
    assert environment["RAY_gcs_rpc_server_reconnect_timeout_s"] == "120"
    assert again["spec"]["gcsFaultToleranceOptions"]["redisAddress"] == "redis:6379"


def test_a_head_with_redis_is_told_of_it_on_hosts_and_in_clouds():
    setup = replace(SETUP, redis="10.0.0.9:6379", storage_namespace="many")
    told = [
        command(setup, setup.hosts[0]).replace('"', ""),
        make_file(replace(described("azure"), redis="10.0.0.9:6379"))["head_start_ray_commands"][1],
    ]
    for words in told:
        assert "RAY_REDIS_ADDRESS=10.0.0.9:6379" in words
        assert "RAY_external_storage_namespace=many" in words
        assert "RAY_gcs_rpc_server_reconnect_timeout_s=120" in words
    # The others only wait for the head for longer.
    other = command(setup, setup.hosts[1])
    assert "REDIS" not in other
    assert 'RAY_gcs_rpc_server_reconnect_timeout_s="120"' in other


def test_a_file_that_is_there_keeps_what_is_not_the_clusters_to_say():
    first = make_file(described("azure"))
    first["provider"]["resource_group"] = "mine"
    first["available_node_types"][WORKERS]["node_config"]["azure_arm_parameters"]["imageSku"] = "own"
    again = make_file(described("azure", max_nodes=9), first)
    assert again["provider"]["resource_group"] == "mine"
    assert again["available_node_types"][WORKERS]["node_config"]["azure_arm_parameters"]["imageSku"] == "own"
    assert again["available_node_types"][WORKERS]["max_workers"] == 9
    assert make_file(described("azure", max_nodes=9), again) == again


def test_an_unknown_provider_is_refused_with_the_known_ones():
    with pytest.raises(errors.JobError, match="no provider 'moon'"):
        make_file(described("moon"))
