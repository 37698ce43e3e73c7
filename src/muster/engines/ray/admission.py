"""Which gangs Ray hears of: a group that waits there makes its autoscaler bring machines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A gang that may be asked for."""

    id: str
    num_nodes: int
    priority: int
    """0 low, 1 medium, 2 high."""
    since: float


def admit(waiting: Sequence[Waiting], asked: Sequence[int], placed: Sequence[int], most_nodes: int) -> list[str]:
    """The next gangs to ask for, in order; `asked` and `placed` are the nodes of gangs that Ray has been asked for.

    The first in the line is always asked for once nobody before it waits, for it may share machines; those behind it
    only as far as whole machines are left, so that what waits in Ray never exceeds the cluster and nobody overtakes.
    """
    chosen: list[str] = []
    held = sum(asked) + sum(placed)
    someone_waits = bool(asked)
    for gang in sorted(waiting, key=lambda item: (-item.priority, item.since, item.id)):
        if someone_waits and held + gang.num_nodes > most_nodes:
            break
        chosen.append(gang.id)
        held += gang.num_nodes
        someone_waits = True
    return chosen
