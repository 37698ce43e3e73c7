"""Machines for Ray: commands for given hosts, their secrets, and files for Ray's own launcher."""

from __future__ import annotations

import shlex
import ssl
import stat
from pathlib import Path

import pytest

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


def test_kubernetes_gets_a_raycluster():
    made = make_file(described("kubernetes", memory_gb=32))
    group = made["spec"]["workerGroupSpecs"][0]
    assert (made["kind"], group["minReplicas"], group["maxReplicas"]) == ("RayCluster", 1, 4)
    assert made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] == 300
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "6", "memory": "32Gi", "nvidia.com/gpu": "1"}


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
