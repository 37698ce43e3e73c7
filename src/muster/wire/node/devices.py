"""What a node has that ranks reach each other with: gathered by its agent, read by the plan."""

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
    """A node, as far as its network and GPUs go."""

    interfaces: tuple[Interface, ...] = ()
    rdma: tuple[RdmaPort, ...] = ()
    uverbs: bool = False
    """/dev/infiniband lets programs in."""
    memlock_bytes: int | None = None
    """How much memory a rank may pin; None: any amount."""
    idle_adapters: tuple[str, ...] = ()
    """InfiniBand adapters on the PCI bus that no driver has taken."""
    network_direct: bool = False
    """RDMA by Hyper-V's Network Direct, which only Intel MPI speaks (over DAPL)."""
    gpus: int = 0
