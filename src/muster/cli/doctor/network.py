"""What is measured between the nodes of a gang; `gang/measure.py` writes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.wire.codec import OMIT


@dataclass(frozen=True)
class Node:
    """One node of the gang."""

    rank: int
    address: str
    host: str
    machine: str
    """The same for nodes that are simulated on one machine."""
    cpus: int
    memory_bytes: int
    gpus: tuple[str, ...]
    interface: str
    infiniband_gbit: float
    disk_bytes_per_s: float
    name: str = ""


@dataclass(frozen=True)
class Pair:
    """Two nodes by their ranks, and how well they reach each other."""

    nodes: tuple[int, int]
    bytes_per_s: float = field(default=0.0, metadata=OMIT)
    round_trip_s: float = field(default=0.0, metadata=OMIT)
    error: str = field(default="", metadata=OMIT)


@dataclass(frozen=True)
class Measurement:
    """What the gang found."""

    nodes: tuple[Node, ...]
    pairs: tuple[Pair, ...]
    all_pairs: bool
    """False: only neighbours were measured."""
