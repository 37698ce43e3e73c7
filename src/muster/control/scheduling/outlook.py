"""The features that predict how long a gang waits, as known when its wait begins."""

from __future__ import annotations

from muster.control.estimates.book import Traits
from muster.control.scheduling.model import UNKNOWN, Gang, Head
from muster.control.scheduling.queue import Queue

_HELD = "held"


def wait_traits(gang: Gang, queue: Queue, head: Head | None, now: float, held: bool = False) -> Traits:
    """From coarse to fine: its size, how many of its size or smaller wait, when the first is likely to start.

    `held`: it waits for something else than nodes, which says nothing about those that wait for nodes alone.
    """
    size = _size(gang.need.nodes, gang.need.gpus, gang.need.ranks)
    rivals = sum(count for need, count in queue.shapes.items() if _size(need.nodes, need.gpus, need.ranks) <= size)
    at = UNKNOWN if head is None else head.likely_at
    soon = -1 if at == UNKNOWN else _bucket(max(0.0, at - now) / 60.0)
    traits = (_bucket(size), _bucket(rivals), gang.priority, soon)
    return (_HELD, *traits) if held else traits


def others_waited_s(gang: Gang, queue: Queue, now: float) -> float:
    """How long the first gang of its size or smaller has waited."""
    most = _size(gang.need.nodes, gang.need.gpus, gang.need.ranks)
    first = next((other for other in queue if _size(other.need.nodes, other.need.gpus, other.need.ranks) <= most), gang)
    return max(0.0, now - first.queued_at)


def _size(nodes: int, gpus: int | None, ranks: int) -> int:
    return nodes * max(1, gpus or ranks)


def _bucket(amount: float) -> int:
    """The order of magnitude, in powers of two."""
    return int(amount).bit_length()
