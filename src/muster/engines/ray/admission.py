"""Which gangs are requested from Ray: a waiting group makes its autoscaler add machines. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from muster.engines.base import GangRequest


@dataclass
class QueuedGang:
    """An attempt that needs nodes."""

    request: GangRequest
    since: float
    asked: bool = False
    """Whether Ray has been asked for its nodes."""
    placed: bool = False
    started: bool = False
    """The broker has reported that its agents run."""
    lost: bool = False
    """Ray has lost its nodes: the head was restarted."""

    @property
    def num_nodes(self) -> int:
        return len(self.request.nodes)


def next_gangs(gangs: Collection[QueuedGang], most_nodes: int) -> list[QueuedGang]:
    """The next gangs to ask for, in order.

    The first in the line is always asked for once nobody before it waits, for it may share machines; those behind it
    only as far as whole machines are left, so that what waits in Ray never exceeds the cluster and nobody overtakes.
    """
    chosen: list[QueuedGang] = []
    gangs = [gang for gang in gangs if not gang.lost]
    held = sum(gang.num_nodes for gang in gangs if gang.asked)
    someone_waits = any(gang.asked and not gang.placed for gang in gangs)
    waiting = [gang for gang in gangs if not gang.asked]
    for gang in sorted(waiting, key=lambda item: (-item.request.gang.priority, item.since, item.request.id)):
        if someone_waits and held + gang.num_nodes > most_nodes:
            break
        chosen.append(gang)
        held += gang.num_nodes
        someone_waits = True
    return chosen
