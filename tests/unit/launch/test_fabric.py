"""From descriptions of real machines to settings. After a wanted change: UPDATE_GOLDEN=1 pytest tests/unit/launch."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from muster.errors import JobError
from muster.job.parts import Mpi, PyTorch, Resources
from muster.job.spec import JobSpec
from muster.launch.fabric import Fabric, Member, Wanted, check_interfaces, choose, infiniband_trouble, usable_ports
from muster.launch.plan import plan, with_network
from muster.wire.codec import from_json, to_json
from muster.wire.node.devices import Devices, Interface, RdmaPort
from muster.wire.node.plan import Slot

MACHINES = Path(__file__).parent / "machines"
GOLDEN = Path(__file__).parent / "golden_network"
NAMES = sorted(path.stem for path in MACHINES.iterdir())


def machine(name: str) -> tuple[str, Devices]:
    described = json.loads((MACHINES / f"{name}.json").read_text())
    return described["address"], from_json(Devices, described["devices"])


def gang(*names: str, devices: Devices | None = None) -> list[Member]:
    members = []
    for index, name in enumerate(names):
        address, found = machine(name)
        members.append(Member(f"node-{index}", address, devices or found))
    return members


def pair(name: str, wanted: Wanted | None = None, mpi: bool = False, **user: str) -> Fabric:
    return choose(gang(name, name), user, wanted, mpi=mpi)


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_are_those_on_file(name: str) -> None:
    made = {kind: pair(name, mpi=kind == "mpi") for kind in ("pytorch", "mpi")}
    told = {kind: {"settings": made[kind].settings[0], "notices": made[kind].notices} for kind in made}
    text = json.dumps(told, indent=1) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text
    assert from_json(Devices, json.loads(json.dumps(to_json(machine(name)[1])))) == machine(name)[1]


def test_every_setting_is_documented() -> None:
    document = (Path(__file__).parents[3] / "docs" / "launch-contract.md").read_text()
    for path in GOLDEN.iterdir():
        for kind in json.loads(path.read_text()).values():
            assert all(f"`{name}`" in document for name in kind["settings"]), path.name


def test_no_file_is_left_of_a_machine_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(NAMES)


@pytest.mark.parametrize(
    ("name", "hca"),
    [
        ("azure_nc24rs_sriov", "=mlx4_0:1"),
        ("azure_nd40rs_v2", "=mlx5_0:1"),
        ("azure_nd96asr_v4", "=" + ",".join(f"mlx5_ib{port}:1" for port in range(8))),
        ("azure_nd96isr_h100_v5", "=" + ",".join(f"mlx5_ib{port}:1" for port in range(8))),
    ],
)
def test_infiniband_is_used_and_accelerated_ethernet_is_not_taken_for_it(name: str, hca: str) -> None:
    env = pair(name).settings[0]
    assert env["NCCL_IB_HCA"] == hca
    assert env["UCX_NET_DEVICES"] == hca.removeprefix("=")
    assert "NCCL_IB_DISABLE" not in env
    assert env["GLOO_SOCKET_IFNAME"] == "eth0"


@pytest.mark.parametrize(("name", "interface"), [("ethernet_box", "eno1"), ("laptop", "wlp3s0")])
def test_without_infiniband_everything_stays_on_the_interface_of_the_nodes_address(name: str, interface: str) -> None:
    env = pair(name, mpi=True).settings[0]
    assert env["NCCL_IB_DISABLE"] == "1"
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include"):
        assert env[variable] == interface
    assert env["FI_PROVIDER"] == "tcp"


def test_network_direct_is_for_intel_mpi_alone() -> None:
    env = pair("azure_nc24r_network_direct", mpi=True).settings[0]
    assert env["I_MPI_DAPL_PROVIDER"] == "ofa-v2-ib0"
    assert env["NCCL_IB_DISABLE"] == "1"


def test_one_node_without_infiniband_keeps_the_whole_gang_off_it_and_says_so() -> None:
    made = choose(gang("azure_nd96asr_v4", "ethernet_box"), {})
    assert all(env["NCCL_IB_DISABLE"] == "1" for env in made.settings)
    assert "InfiniBand works on node-0, but not on node-1: all ranks use TCP" in "\n".join(made.notices)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"uverbs": False}, "/dev/infiniband has no uverbs device"),
        ({"memlock_bytes": 65536}, "only 64 KiB of memory may be locked"),
        ({"rdma": (RdmaPort("mlx5_0", state="INIT", rate_gbit=100),)}, "no port is active: mlx5_0:1 is INIT"),
        ({"rdma": (), "idle_adapters": ("0101:00:00.0",)}, "no driver is loaded for its InfiniBand adapter"),
    ],
)
def test_infiniband_that_does_not_work_is_kept_off_with_the_reason(change: dict[str, object], said: str) -> None:
    _, devices = machine("azure_nd40rs_v2")
    troubled = replace(devices, **change)  # type: ignore[arg-type]
    assert said in infiniband_trouble(troubled)
    assert usable_ports(troubled) == ()
    made = choose(gang("azure_nd40rs_v2", "azure_nd40rs_v2", devices=troubled), {})
    assert made.settings[0]["NCCL_IB_DISABLE"] == "1"
    assert f"node-0, node-1: there is InfiniBand that cannot be used: {said}" in "\n".join(made.notices)


def test_only_the_fastest_ports_are_used() -> None:
    ports = (RdmaPort("mlx5_0", rate_gbit=200), RdmaPort("mlx5_1", rate_gbit=200), RdmaPort("mlx5_bond", rate_gbit=40))
    assert [port.device for port in usable_ports(Devices(rdma=ports, uverbs=True))] == ["mlx5_0", "mlx5_1"]


def test_what_the_user_sets_of_a_group_takes_the_rest_of_it_away() -> None:
    off = pair("azure_nd96asr_v4", NCCL_IB_DISABLE="1")
    assert "NCCL_IB_HCA" not in off.settings[0]
    assert "NCCL_IB_DISABLE=1 keeps NCCL off" in "\n".join(off.notices)
    assert "NCCL_IB_DISABLE" not in pair("ethernet_box", NCCL_IB_HCA="mlx5_0").settings[0]
    assert "UCX_TLS" not in pair("ethernet_box", UCX_NET_DEVICES="mlx5_0:1").settings[0]
    assert "FI_PROVIDER" not in pair("ethernet_box", mpi=True, I_MPI_FABRICS="shm").settings[0]


def test_the_clusters_interface_and_subnet_choose_another_address() -> None:
    by_name = pair("azure_nc24rs_sriov", Wanted(interface="ib0"))
    assert by_name.addresses == ("172.16.1.44", "172.16.1.44")
    assert by_name.settings[0]["GLOO_SOCKET_IFNAME"] == "ib0"
    by_subnet = pair("azure_nc24rs_sriov", Wanted(subnet="172.16.0.0/16"))
    assert by_subnet.addresses == by_name.addresses
    assert pair("azure_nc24rs_sriov", Wanted(subnet="training-subnet")).addresses == ("10.0.0.4", "10.0.0.4")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(interface="eth7"), "node-0 has no network interface 'eth7'"),
        (Wanted(interface="enp0s31f6"), "the interface enp0s31f6 of node-0, which its cluster asks for, is down"),
        (Wanted(interface="veth1a2b3c4"), "has no IPv4 address"),
        (Wanted(subnet="10.99.0.0/16"), "no interface of node-0 is in the subnet 10.99.0.0/16"),
    ],
)
def test_an_interface_that_cannot_be_used_is_refused_with_those_there_are(wanted: Wanted, said: str) -> None:
    with pytest.raises(JobError) as refused:
        pair("laptop", wanted)
    assert said in refused.value.message
    assert "wlp3s0 (192.168.1.23)" in refused.value.hint
    assert "virbr0 (down)" in refused.value.hint


def test_where_no_interface_carries_the_address_the_fastest_that_leads_out_is_taken() -> None:
    _, devices = machine("laptop")
    made = choose([Member("node-0", "203.0.113.7", devices)] * 2, {})
    assert made.settings[0]["GLOO_SOCKET_IFNAME"] == "wlp3s0"
    inward = tuple(item for item in devices.interfaces if item.name != "wlp3s0")
    made = choose([Member("node-0", "203.0.113.7", replace(devices, interfaces=inward))] * 2, {})
    assert "GLOO_SOCKET_IFNAME" not in made.settings[0]
    assert "no network interface that leads out" in made.notices[0]


def test_a_bridge_that_carries_the_address_is_taken_all_the_same() -> None:
    _, devices = machine("laptop")
    made = choose([Member("node-0", "172.17.0.1", devices)] * 2, {})
    assert made.settings[0]["GLOO_SOCKET_IFNAME"] == "docker0"


def test_nccl_is_told_one_interface_where_another_begins_with_its_name() -> None:
    devices = Devices(interfaces=(Interface("eth0", ("10.0.0.4",)), Interface("eth0.7", ("10.7.0.4",))))
    env = choose([Member("node-0", "10.0.0.4", devices)] * 2, {}).settings[0]
    assert env["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert env["GLOO_SOCKET_IFNAME"] == "eth0"


def test_amazons_adapters_are_left_to_libfabric() -> None:
    efa = RdmaPort("rdmap0s6", link_layer="Unspecified", driver="efa")
    devices = Devices(interfaces=(Interface("ens5", ("10.0.0.4",)),), rdma=(efa,), uverbs=True)
    assert "FI_PROVIDER" not in choose([Member("node-0", "10.0.0.4", devices)] * 2, {}, mpi=True).settings[0]


def test_interfaces_that_the_user_names_must_be_there() -> None:
    names = ["lo", "eth0", "ib0"]
    assert check_interfaces({"GLOO_SOCKET_IFNAME": "eth0"}, names) is None
    assert check_interfaces({"NCCL_SOCKET_IFNAME": "eth,ib"}, names) is None
    assert check_interfaces({"NCCL_SOCKET_IFNAME": "^docker"}, names) is None
    assert check_interfaces({"NCCL_SOCKET_IFNAME": "=ib0"}, names) is None
    wrong = check_interfaces({"GLOO_SOCKET_IFNAME": "eth"}, names)
    assert wrong == "GLOO_SOCKET_IFNAME is 'eth', and no interface here has that name. There are: lo, eth0, ib0"
    assert "'=eth'" in str(check_interfaces({"NCCL_SOCKET_IFNAME": "=eth"}, names))


def spec(distribution: PyTorch | Mpi, **env: str) -> JobSpec:
    return JobSpec(
        command="true", distribution=distribution, resources=Resources(instance_count=2), environment_variables=env
    )


def test_a_plan_carries_the_network_and_the_users_variables_win() -> None:
    address, devices = machine("azure_nd96asr_v4")
    slots = [Slot(f"gpu-{rank}", address, ports=(6105,)) for rank in range(2)]
    job = spec(PyTorch(), NCCL_SOCKET_IFNAME="ib0")
    networked, notices = with_network(job, slots, [devices, devices])
    for rank in plan(job, networked, run_id="r", attempt=1).ranks:
        assert rank.env["NCCL_SOCKET_IFNAME"] == "ib0"
        assert rank.env["GLOO_SOCKET_IFNAME"] == "eth0"
    assert any("InfiniBand is used" in text for text in notices)


def test_one_machine_and_unknown_devices_are_left_alone() -> None:
    _, devices = machine("azure_nd96asr_v4")
    simulated = [Slot(f"local-{rank}", "127.0.0.1", ports=(6105,), shared_host=True) for rank in range(2)]
    assert with_network(spec(PyTorch()), simulated, [devices, devices]) == (tuple(simulated), ())
    apart = [Slot(f"gpu-{rank}", f"10.0.0.{rank}", ports=(6105,)) for rank in range(2)]
    assert with_network(spec(PyTorch()), apart, [devices, None]) == (tuple(apart), ())
