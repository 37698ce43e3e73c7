"""Whether a second node would help: compares measurements of `gang/measure.py` with what training exchanges. Pure.

The yardstick is ResNet-50, data parallel: after each step every node sends its gradients once around. A step takes
what the GPUs compute plus what the exchange takes; modern frameworks hide a part of it, old ones hid nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.wire.codec import OMIT

GRADIENT_BYTES = 102e6
BATCH_PER_GPU = 64
ADDS_NOTHING = 1.15
ADDS_LITTLE = 1.5
# Sockets between nodes carry less of a gradient exchange than of a plain stream.
SOCKET_SHARE = 0.7
INFINIBAND_SHARE = 0.7

# Training speed of ResNet-50, images a second on one GPU; the first four are TensorFlow's of 2018 in single precision.
IMAGES_PER_S = {
    "K80": 53.0,
    "P40": 173.0,
    "P100": 234.0,
    "V100": 358.0,
    "T4": 150.0,
    "A100": 2400.0,
    "H100": 4000.0,
    "H200": 4711.0,
}
UNKNOWN_GPU_IMAGES_PER_S = 1000.0
CPU_CORE_IMAGES_PER_S = 1.5


@dataclass(frozen=True)
class Node:
    """One node of the gang."""

    rank: int
    address: str
    host: str
    machine: str
    """Equal for nodes that are simulated on one machine."""
    cpus: int
    memory_bytes: int
    gpus: tuple[str, ...]
    interface: str
    infiniband_gbit: float
    disk_bytes_per_s: float
    name: str = ""


@dataclass(frozen=True)
class Pair:
    """Two nodes by their ranks, and the connection between them."""

    nodes: tuple[int, int]
    bytes_per_s: float = field(default=0.0, metadata=OMIT)
    round_trip_s: float = field(default=0.0, metadata=OMIT)
    error: str = field(default="", metadata=OMIT)


@dataclass(frozen=True)
class Measurement:
    """The gang's measurements."""

    nodes: tuple[Node, ...]
    pairs: tuple[Pair, ...]
    all_pairs: bool
    """False: only neighbours were measured."""


@dataclass(frozen=True)
class Judgement:
    """What the measurements mean for training on these nodes."""

    level: str
    """ok | warn"""
    said: str
    speedup: float | None = None
    """The speed-up of all nodes over one."""
    exchange_s: float | None = None
    step_s: float | None = None


def judge(measured: Measurement, images_per_s: float | None = None) -> Judgement:
    """The conclusion in plain words; `images_per_s` is the throughput of one node, where the user knows it."""
    nodes, pairs = measured.nodes, measured.pairs
    broken = [pair for pair in pairs if pair.error]
    if broken:
        first, second = broken[0].nodes
        return Judgement("warn", f"Nodes {first} and {second} do not reach each other: {broken[0].error}.")
    if len(nodes) > 1 and len({node.address for node in nodes}) == 1:
        return Judgement(
            "warn",
            "All nodes are on one machine and share its cores and GPUs: good for trying a job out, "
            "but a second node adds nothing to its speed.",
        )
    if not pairs:
        return Judgement("ok", "One node has no network to measure.")
    judged = _of_network(nodes, _bytes_per_s(nodes, pairs), images_per_s)
    if len({node.machine for node in nodes}) == 1:
        shared = " The nodes have one kernel (containers of one machine?), so they also share its cores and GPUs."
        return replace(judged, said=judged.said + shared)
    return judged


def speedup(num_nodes: int, step_s: float, exchange_s: float) -> float:
    """The speed-up over one node, if no part of the exchange overlaps with computing."""
    return num_nodes * step_s / (step_s + exchange_s)


def exchange_seconds(num_nodes: int, bytes_per_s: float) -> float:
    """The duration of a ring all-reduce: each node sends the gradients almost twice, over one link."""
    return 2 * (num_nodes - 1) / num_nodes * GRADIENT_BYTES / bytes_per_s


def node_images_per_s(gpus: Sequence[str], cpus: int) -> tuple[float, str]:
    """The assumed throughput of a node, and the assumption in words."""
    if not gpus:
        return cpus * CPU_CORE_IMAGES_PER_S, f"{cpus} CPU cores"
    name = next((name for name in sorted(IMAGES_PER_S, key=len, reverse=True) if name in gpus[0]), None)
    each = IMAGES_PER_S[name] if name else UNKNOWN_GPU_IMAGES_PER_S
    return len(gpus) * each, f"{len(gpus)} x {gpus[0]}"


def _bytes_per_s(nodes: Sequence[Node], pairs: Sequence[Pair]) -> float:
    """The bandwidth of a gradient exchange: the slowest link decides."""
    infiniband = min(node.infiniband_gbit for node in nodes) * 1e9 / 8 * INFINIBAND_SHARE
    sockets = min(pair.bytes_per_s for pair in pairs) * SOCKET_SHARE
    return max(infiniband, sockets, 1.0)


def _of_network(nodes: Sequence[Node], bytes_per_s: float, images_per_s: float | None) -> Judgement:
    slowest = min(nodes, key=lambda node: node_images_per_s(node.gpus, node.cpus)[0])
    assumed, described = node_images_per_s(slowest.gpus, slowest.cpus)
    rate = images_per_s or assumed
    step_s = BATCH_PER_GPU * max(1, len(slowest.gpus)) / rate
    exchange_s = exchange_seconds(len(nodes), bytes_per_s)
    gain = speedup(len(nodes), step_s, exchange_s)
    where = "over InfiniBand" if min(node.infiniband_gbit for node in nodes) else "over TCP"
    basis = (
        f"ResNet-50 exchanges {GRADIENT_BYTES / 1e6:.0f} MB of gradients a step, which takes about "
        f"{exchange_s:.3g} s {where}; a node ({described}, {rate:,.0f} images/s"
        f"{'' if images_per_s else ' assumed'}) computes a step in {step_s:.3g} s"
    )
    level = "warn"
    if gain < ADDS_NOTHING:
        text = f"The network is too slow: {len(nodes)} nodes together would do {gain:.2f} times what one does. {basis}."
        text += " Use one node (more GPUs in it), a faster network, or exchange gradients less often."
    elif gain < ADDS_LITTLE * len(nodes) / 2:
        text = f"A further node adds little: {len(nodes)} nodes would do {gain:.2f} times what one does. {basis}."
        text += " Larger batches, or gradients in half precision, make more of it."
    else:
        level, text = "ok", f"{len(nodes)} nodes would do about {gain:.2f} times what one does. {basis}."
    return Judgement(level, text, gain, exchange_s, step_s)
