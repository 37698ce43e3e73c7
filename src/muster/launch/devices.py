"""What a node has that ranks reach each other with: plain data, gathered by its agent, read by the plan.

Standard library only: the agent imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

INFINIBAND = "InfiniBand"


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


def to_json(devices: Devices) -> dict[str, Any]:
    return asdict(devices)


def from_json(data: Mapping[str, Any]) -> Devices:
    fields = dict(data)
    fields["interfaces"] = tuple(
        Interface(**{**item, "addresses": tuple(item.get("addresses", ()))}) for item in data.get("interfaces", ())
    )
    fields["rdma"] = tuple(RdmaPort(**item) for item in data.get("rdma", ()))
    fields["idle_adapters"] = tuple(data.get("idle_adapters", ()))
    return Devices(**fields)
