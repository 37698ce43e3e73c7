"""A simulated node: its agent with the real decision about orders, its folder, the ranks that it started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.agent.attempt import Phase, Step, next_step
from muster.wire.node.agents import (
    AttemptKey,
    Delivered,
    Ended,
    Event,
    EventData,
    Exited,
    Order,
    Prepared,
    Refused,
    Started,
    StartedRank,
)


@dataclass
class Rank:
    """A process of an attempt, or what its keeper wrote down of it."""

    number: int
    alive: bool = True
    exit_code: int | None = None
    signal: int | None = None
    expected: bool = False


@dataclass
class Folder:
    """What lies on a node's disk of an attempt: it outlives the agent."""

    order: Order
    phase: Phase = Phase.ORDERED
    reported: bool = False
    """The server may have heard that it was prepared."""
    ranks: dict[int, Rank] = field(default_factory=dict)
    launched: bool = False
    printed: int = 0
    """Bytes of its log."""
    acknowledged: int = 0
    told: list[Event] = field(default_factory=list)
    """Events that the server has not acknowledged; lost with the agent, and told again from the journal."""
    stopped: bool = False

    @property
    def running(self) -> list[Rank]:
        return [rank for rank in self.ranks.values() if rank.alive]


class Node:
    """One node and the life of its agent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folders: dict[AttemptKey, Folder] = {}
        self.agent: str | None = None
        """The id of the living agent; None: there is none."""
        self.greeted = False
        self.lives = 0
        self.cut_off = False
        self.forgotten: set[AttemptKey] = set()
        self.delivered: dict[AttemptKey, int] = {}
        """How many lines the ranks of an attempt printed that was delivered and forgotten."""

    @property
    def holding(self) -> tuple[AttemptKey, ...]:
        return tuple(self.folders)

    def crash(self) -> None:
        """The agent dies; keepers see it and end their ranks."""
        self.agent, self.greeted = None, False
        self.forgotten.clear()
        for folder in self.folders.values():
            folder.told.clear()
            for rank in folder.running:
                rank.alive, rank.signal, rank.expected = False, 9, True

    def start(self, now: float) -> None:
        """The next agent takes up what lies in the folders."""
        self.lives += 1
        self.agent, self.greeted = f"{self.name}/{self.lives}", False
        for key, folder in list(self.folders.items()):
            if not folder.reported:
                del self.folders[key]
                continue
            if folder.phase in (Phase.ENDED, Phase.DELIVERED) or folder.launched or folder.phase is Phase.PREPARED:
                self._tell_story(key, folder, now)
                self._end(key, folder, "agent_lost", now)

    def _tell_story(self, key: AttemptKey, folder: Folder, now: float) -> None:
        if folder.launched:
            self._tell(key, folder, Started(tuple(StartedRank(n, 1, now) for n in folder.ranks)), now)
        for rank in folder.ranks.values():
            self._tell_exit(key, folder, rank, now)

    # Orders

    def apply(self, orders: Sequence[Order], now: float) -> None:
        for order in orders:
            folder = self.folders.get(order.key)
            if folder is None:
                if order.key in self.forgotten:
                    continue
                folder = self.folders[order.key] = Folder(order)
                for (run, attempt), older in list(self.folders.items()):
                    if run == order.run and attempt < order.attempt and older.phase is Phase.RUNNING:
                        self._stop(older)
            folder.order = order
            self._advance(order.key, folder, now)

    def _advance(self, key: AttemptKey, folder: Folder, now: float) -> None:
        step = next_step(folder.order, folder.phase)
        if step is Step.PREPARE:
            folder.phase = Phase.PREPARING
        elif step is Step.LAUNCH:
            assert folder.order.plan is not None
            folder.phase, folder.launched = Phase.RUNNING, True
            folder.ranks = {rank.rank: Rank(rank.rank) for rank in folder.order.plan.ranks}
            self._tell(key, folder, Started(tuple(StartedRank(n, 1, now) for n in folder.ranks)), now)
        elif step is Step.STOP:
            self._stop(folder)
        elif step is Step.END:
            self._end(key, folder, folder.order.stop_reason or "done", now)
        elif step is Step.REMOVE:
            self.remove(key)

    def remove(self, key: AttemptKey) -> None:
        self.folders.pop(key, None)
        self.forgotten.add(key)

    def forget(self, key: AttemptKey, now: float) -> None:
        """The server's answer to a delivery: the attempt is over."""
        folder = self.folders.get(key)
        if folder is not None and folder.phase is not Phase.PREPARING:
            if folder.phase is Phase.RUNNING and folder.running:
                self._stop(folder)
            else:
                self.remove(key)

    def _stop(self, folder: Folder) -> None:
        folder.stopped = True

    # What happens on the node

    def prepare(self, key: AttemptKey, refuse: bool, now: float) -> None:
        """Its preparation ends."""
        folder = self.folders[key]
        if folder.order.action in ("stop", "forget"):
            self._end(key, folder, folder.order.stop_reason or "done", now)
        elif refuse:
            self._tell(key, folder, Refused("bad_input", "refused"), now)
            self._end(key, folder, "refused", now)
        else:
            folder.phase, folder.reported = Phase.PREPARED, True
            ports = tuple(range(40_000, 40_000 + folder.order.ports_count))
            self._tell(key, folder, Prepared(ports), now)
            self._advance(key, folder, now)

    def exit(self, key: AttemptKey, rank: Rank, code: int | None, signal: int | None, now: float) -> None:
        """A rank ends by itself, or by the stop that it was given."""
        folder = self.folders[key]
        rank.alive, rank.exit_code, rank.signal = False, code, signal
        rank.expected = folder.stopped and code != 0
        if rank.exit_code != 0 and not folder.stopped:
            # The keeper ends the others of this node.
            folder.stopped = True
        self._tell_exit(key, folder, rank, now)
        if not folder.running:
            self._end(key, folder, "done", now)

    def _tell_exit(self, key: AttemptKey, folder: Folder, rank: Rank, now: float) -> None:
        self._tell(key, folder, Exited(rank.number, rank.exit_code, rank.signal, rank.expected, now), now)

    def _end(self, key: AttemptKey, folder: Folder, reason: str, now: float) -> None:
        folder.phase = Phase.ENDED
        self._tell(key, folder, Ended(now, reason), now)
        self._tell(key, folder, Delivered(), now)

    def _tell(self, key: AttemptKey, folder: Folder, data: EventData, now: float) -> None:
        folder.told.append(Event(*key, now, data))
