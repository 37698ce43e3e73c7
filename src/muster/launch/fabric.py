"""Chooses the network of the ranks: from the devices of a gang's nodes to settings of NCCL, Gloo, UCX and MPI. Pure.

InfiniBand is used where it works on every node of the gang, and disabled otherwise: a node that uses it and one that
does not would wait for each other. Otherwise TCP uses the interface that has the node's own address, unless the
cluster names an interface or a subnet. The user's settings always win.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.errors import JobError
from muster.host.network import network_of
from muster.launch.describe import counted, listed
from muster.wire.node.devices import INFINIBAND, Devices, Interface, RdmaPort

SOCKET_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
MIN_MEMLOCK_BYTES = 64 << 20

# Interfaces of containers, virtual machines and private tunnels, which other nodes cannot reach.
_INWARD = re.compile(
    r"docker|br-|veth|virbr|vnet\d|tun|tap|wg|tailscale|zt|cni|flannel|cali|cilium|lxc|lxd|podman|ifb|dummy"
)
# Where the user sets one variable of a group, Muster sets none of it, to avoid contradictions.
_GROUPS = (
    re.compile(r"NCCL_IB_"),
    re.compile(r"UCX_(?:NET_DEVICES|TLS)$"),
    re.compile(r"FI_PROVIDER$|I_MPI_FABRICS$|I_MPI_OFI_PROVIDER$|I_MPI_DAPL_|I_MPI_DYNAMIC_CONNECTION$"),
    re.compile(r"OMPI_MCA_(?:pml|btl)$"),
)


@dataclass(frozen=True)
class Member:
    """A node of the gang: its name, the address that the others know, and its devices."""

    name: str
    address: str
    devices: Devices


@dataclass(frozen=True)
class Wanted:
    """The cluster's settings of its network."""

    interface: str | None = None
    subnet: str | None = None


@dataclass(frozen=True)
class Fabric:
    """The choice: the address and settings of every node, with notices that explain it."""

    addresses: tuple[str, ...]
    settings: tuple[Mapping[str, str], ...]
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Way:
    """The interface of one node."""

    interface: Interface | None
    address: str
    why: str


def choose(
    members: Sequence[Member], user: Mapping[str, str], wanted: Wanted | None = None, *, mpi: bool = False
) -> Fabric:
    """The network of a gang on several machines; JobError where the cluster's interface is not on a node."""
    ways = [_way(member, wanted or Wanted()) for member in members]
    ports = [usable_ports(member.devices) for member in members]
    shared = all(ports)
    settings = tuple(
        _without_overridden(node_settings(member.devices, way.interface, found if shared else (), mpi=mpi), user)
        for member, way, found in zip(members, ways, ports, strict=True)
    )
    notices = (*_about_interfaces(members, ways), *_about_infiniband(members, ports, user))
    return Fabric(tuple(way.address for way in ways), settings, notices)


def node_settings(
    devices: Devices, interface: Interface | None, ports: Sequence[RdmaPort], *, mpi: bool = False
) -> dict[str, str]:
    """The variables of one node; `ports` are the InfiniBand ports to use, none for TCP."""
    env: dict[str, str] = {}
    if interface is not None:
        env |= dict.fromkeys(SOCKET_VARIABLES, interface.name)
        env["NCCL_SOCKET_IFNAME"] = _exactly(interface, devices)
    if ports:
        env["NCCL_IB_HCA"] = "=" + ",".join(port.name for port in ports)
        env["UCX_NET_DEVICES"] = ",".join(port.name for port in ports)
    else:
        env["NCCL_IB_DISABLE"] = "1"
        env["UCX_TLS"] = "tcp,self,sm" + (",cuda" if devices.gpus else "")
        if interface is not None:
            env["UCX_NET_DEVICES"] = interface.name
    return env | (_mpi_settings(devices, interface, ports) if mpi else {})


def usable_ports(devices: Devices) -> tuple[RdmaPort, ...]:
    """The InfiniBand ports that ranks can use: the fastest of the working ones."""
    if infiniband_trouble(devices):
        return ()
    active = [port for port in _infiniband(devices) if port.state == "ACTIVE"]
    fastest = max((port.rate_gbit for port in active), default=0.0)
    return tuple(port for port in active if port.rate_gbit == fastest)


def infiniband_trouble(devices: Devices) -> str:
    """Why existing InfiniBand cannot be used; empty where it can, or where there is none."""
    ports = _infiniband(devices)
    if not ports:
        if devices.idle_adapters:
            return f"no driver is loaded for its InfiniBand adapter at {', '.join(devices.idle_adapters)}"
        return ""
    if all(port.state != "ACTIVE" for port in ports):
        return "no port is active: " + ", ".join(f"{port.name} is {port.state}" for port in ports)
    if not devices.uverbs:
        return "/dev/infiniband has no uverbs device: the module ib_uverbs is not loaded, or a container hides it"
    if devices.memlock_bytes is not None and devices.memlock_bytes < MIN_MEMLOCK_BYTES:
        return (
            f"only {devices.memlock_bytes >> 10} KiB of memory may be locked; InfiniBand needs `ulimit -l unlimited` "
            "(memlock in /etc/security/limits.conf)"
        )
    return ""


def check_interfaces(user: Mapping[str, str], names: Sequence[str]) -> str | None:
    """What is wrong with the interfaces that the user names, given those of a node; None: nothing."""
    for variable in SOCKET_VARIABLES:
        text = user.get(variable, "").strip()
        if not text or text.startswith("^"):
            continue
        exact = variable != "NCCL_SOCKET_IFNAME" or text.startswith("=")
        requested = [part.strip().split(":")[0] for part in text.removeprefix("=").split(",") if part.strip()]
        found = [
            part for part in requested if any(name == part or (not exact and name.startswith(part)) for name in names)
        ]
        if not found:
            return f"{variable} is {text!r}, and no interface here has that name. There are: {', '.join(names)}"
    return None


def _way(member: Member, wanted: Wanted) -> Way:
    interfaces = member.devices.interfaces
    if wanted.interface is not None:
        return _by_name(member, wanted.interface)
    network = network_of(wanted.subnet)
    if network is not None:
        return _by_subnet(member, network)
    own = next((item for item in interfaces if member.address in item.addresses), None)
    if own is not None:
        return Way(own, member.address, "it carries the node's own address")
    usable = [item for item in interfaces if item.up and item.kind == "ethernet" and _ipv4(item)]
    outward = [item for item in usable if not _INWARD.match(item.name)]
    if not outward:
        return Way(None, member.address, "")
    best = max(outward, key=lambda item: item.speed_mbit)
    return Way(best, member.address, "no interface carries its address, and this is the fastest that leads out")


def _by_name(member: Member, name: str) -> Way:
    found = next((item for item in member.devices.interfaces if item.name == name), None)
    if found is None:
        raise JobError(
            f"{member.name} has no network interface {name!r}, which its cluster asks for",
            f"It has {_described(member.devices)}. Name one of them as the cluster's interface, or leave it out.",
        )
    addresses = _ipv4(found)
    if not found.up or not addresses:
        what = "is down" if not found.up else "has no IPv4 address"
        raise JobError(
            f"the interface {name} of {member.name}, which its cluster asks for, {what}",
            f"It has {_described(member.devices)}. Bring it up, or name another as the cluster's interface.",
        )
    address = member.address if member.address in addresses else addresses[0]
    return Way(found, address, "the cluster names it")


def _by_subnet(member: Member, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Way:
    for item in member.devices.interfaces:
        for address in item.addresses:
            if item.up and ipaddress.ip_address(address.split("%")[0]) in network:
                return Way(item, address, f"it is in the cluster's subnet {network}")
    raise JobError(
        f"no interface of {member.name} is in the subnet {network} of its cluster",
        f"It has {_described(member.devices)}. Correct the cluster's subnet, or leave it out.",
    )


def _infiniband(devices: Devices) -> tuple[RdmaPort, ...]:
    # Virtual functions of accelerated Ethernet are RDMA devices too, and must not be taken for InfiniBand.
    return tuple(port for port in devices.rdma if port.link_layer == INFINIBAND)


def _exactly(interface: Interface, devices: Devices) -> str:
    """NCCL takes a name as a prefix; `=` makes it match exactly one interface."""
    ambiguous = any(
        other.name != interface.name and other.name.startswith(interface.name) for other in devices.interfaces
    )
    return f"={interface.name}" if ambiguous else interface.name


def _mpi_settings(devices: Devices, interface: Interface | None, ports: Sequence[RdmaPort]) -> dict[str, str]:
    # Open MPI 4's own InfiniBand transport is superseded by UCX and only prints warnings; 5 has none.
    env = {"OMPI_MCA_btl": "^openib"}
    if interface is not None:
        env |= {
            "OMPI_MCA_btl_tcp_if_include": interface.name,
            "OMPI_MCA_oob_tcp_if_include": interface.name,
            "PRTE_MCA_prte_if_include": interface.name,
            "HYDRA_IFACE": interface.name,
        }
    if ports:
        return env | {"I_MPI_OFI_PROVIDER": "mlx"}
    if devices.network_direct:
        dapl = {"I_MPI_FABRICS": "shm:dapl", "I_MPI_DAPL_PROVIDER": "ofa-v2-ib0", "I_MPI_DYNAMIC_CONNECTION": "0"}
        return env | {"OMPI_MCA_pml": "ob1"} | dapl
    env["OMPI_MCA_pml"] = "ob1"
    # Amazon's EFA adapters are neither InfiniBand nor TCP; libfabric finds them by itself.
    if not any(port.driver == "efa" for port in devices.rdma):
        env["FI_PROVIDER"] = "tcp"
        if interface is not None:
            env["FI_TCP_IFACE"] = interface.name
    return env


def _without_overridden(env: dict[str, str], user: Mapping[str, str]) -> dict[str, str]:
    taken = [group for group in _GROUPS if any(group.match(name) for name in user)]
    return {name: value for name, value in env.items() if not any(group.match(name) for group in taken)}


def _about_interfaces(members: Sequence[Member], ways: Sequence[Way]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for member, way in zip(members, ways, strict=True):
        if way.interface is None:
            yield (
                f"{member.name} has no network interface that leads out, so none is chosen there: "
                "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME are left to the frameworks"
            )
            continue
        groups.setdefault((way.interface.name, way.why), []).append(f"{member.name} {way.address}")
    for (name, why), nodes in groups.items():
        yield (
            f"ranks talk over the interface {name} ({listed(nodes)}): {why}; "
            "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME override it"
        )


def _about_infiniband(
    members: Sequence[Member], ports: Sequence[Sequence[RdmaPort]], user: Mapping[str, str]
) -> Iterator[str]:
    yield from _troubles(members)
    ready = [(member, found) for member, found in zip(members, ports, strict=True) if found]
    lacking = [member.name for member, found in zip(members, ports, strict=True) if not found]
    if ready and user.get("NCCL_IB_DISABLE") == "1":
        names = listed([member.name for member, _ in ready])
        yield f"InfiniBand would work on {names}, but NCCL_IB_DISABLE=1 keeps NCCL off it, as the job asks"
    elif ready and not lacking:
        kinds = sorted({_ports(found) for _, found in ready})
        yield (
            f"InfiniBand is used by NCCL, UCX and MPI: {'; '.join(kinds)}; "
            "NCCL_IB_DISABLE=1 in environment_variables turns it off for NCCL"
        )
    elif ready:
        yield (
            f"InfiniBand works on {listed([member.name for member, _ in ready])}, but not on {listed(lacking)}: "
            "all ranks use TCP, which is much slower"
        )
    else:
        yield "no InfiniBand is used: NCCL, UCX and MPI are kept on TCP"


def _troubles(members: Sequence[Member]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for member in members:
        trouble = infiniband_trouble(member.devices)
        if trouble:
            found.setdefault(f"there is InfiniBand that cannot be used: {trouble}", []).append(member.name)
        if member.devices.network_direct and not _infiniband(member.devices):
            text = "there is RDMA by Network Direct: Intel MPI uses it (DAPL), NCCL and UCX cannot"
            found.setdefault(text, []).append(member.name)
    for text, names in found.items():
        yield f"{listed(names)}: {text}"
    roce = sorted(
        {port.device for member in members for port in member.devices.rdma if port.link_layer == "Ethernet"}
        if not any(_infiniband(member.devices) for member in members)
        else ()
    )
    if roce:
        yield (
            f"{', '.join(roce)} is RDMA over Ethernet and is not used: where the network is made for it (RoCE), "
            "name it in NCCL_IB_HCA and UCX_NET_DEVICES"
        )


def _ports(ports: Sequence[RdmaPort]) -> str:
    names = [port.device for port in ports]
    shown = ", ".join(names) if len(names) <= 2 else f"{names[0]} to {names[-1]}"
    rate = f" of {ports[0].rate_gbit:g} Gb/s" if ports[0].rate_gbit else ""
    return f"{shown} ({counted(len(names), 'port')}{rate})"


def _ipv4(interface: Interface) -> list[str]:
    return [address for address in interface.addresses if "." in address]


def _described(devices: Devices) -> str:
    return ", ".join(
        f"{item.name} ({_ipv4(item)[0] if _ipv4(item) else 'no address'})" if item.up else f"{item.name} (down)"
        for item in devices.interfaces
    )
