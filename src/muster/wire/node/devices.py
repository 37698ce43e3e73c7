"""A node's network devices and GPUs: collected by its agent, used by the plan."""

from __future__ import annotations

from muster.wire.message import wire

INFINIBAND = "InfiniBand"


@wire
class Interface:
    """A network interface."""

    name: str
    addresses: tuple[str, ...] = ()
    up: bool = True
    kind: str = "ethernet"
    """ethernet | infiniband | loopback | other"""
    speed_mbit: int = 0
    """0: not known."""
    driver: str = ""


@wire
class RdmaPort:
    """One port of an RDMA device."""

    device: str
    port: int = 1
    link_layer: str = INFINIBAND
    state: str = "ACTIVE"
    rate_gbit: float = 0.0
    driver: str = ""
    netdev: str = ""

    @property
    def name(self) -> str:
        return f"{self.device}:{self.port}"


@wire
class Devices:
    """The network devices and GPUs of a node."""

    interfaces: tuple[Interface, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()
    uverbs: bool = False
    """Programs may open /dev/infiniband."""
    memlock_bytes: int | None = None
    """How much memory a rank may pin; None: any amount."""
    idle_adapters: tuple[str, ...] = ()
    """InfiniBand adapters on the PCI bus that no driver uses."""
    network_direct: bool = False
    """RDMA by Hyper-V's Network Direct, which only Intel MPI speaks (over DAPL)."""
    gpus: int = 0
