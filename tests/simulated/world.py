"""The world of a simulation: a server, nodes, a network that loses and repeats, and a clock that only it moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.simulated.agent import Folder, Node

from muster.agent.attempt import Phase
from muster.wire import states
from muster.wire.node.agents import AttemptKey, Delivered, Event, Order

CALM_ROUNDS = 400


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Placement:
    """A part of an attempt on a node, as the server has recorded it."""

    node: str
    phase: str
    ranks: int


@dataclass(frozen=True)
class AttemptState:
    number: int
    over: bool
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class RunState:
    """What the server has recorded of a run."""

    id: str
    status: str
    attempts: tuple[AttemptState, ...]


@dataclass(frozen=True)
class Chunk:
    """Bytes of a log from an offset on."""

    key: AttemptKey
    offset: int
    size: int


@dataclass(frozen=True)
class Delivery:
    """What an agent sends: events and bytes."""

    agent: str
    events: tuple[Event, ...]
    chunks: tuple[Chunk, ...]
    holding: tuple[AttemptKey, ...]


@dataclass(frozen=True)
class Answer:
    lengths: dict[AttemptKey, int]
    forget: tuple[AttemptKey, ...]


class Server(Protocol):
    """The pure decisions, or the real server."""

    now: float

    def submit(self, run: str, nodes: int, ranks: int) -> None: ...

    def hello(self, node: str, agent: str, holding: Sequence[AttemptKey]) -> None: ...

    def orders(self, node: str, agent: str) -> Sequence[Order] | None: ...

    def deliver(self, node: str, delivery: Delivery) -> Answer: ...

    def cancel(self, run: str, force: bool) -> None: ...

    def lose(self, node: str, give_up: bool) -> None: ...

    def watch(self) -> None: ...

    def schedule(self) -> None: ...

    def restart(self) -> None: ...

    def runs(self) -> list[RunState]: ...

    def check_bytes(self, key: AttemptKey, node: str, lines: int) -> None: ...

    def close(self) -> None: ...


class Choices:
    """Numbers that decide what happens next: from a seed, or from an earlier run of the same world."""

    def __init__(self, draw: Callable[[], int | None]) -> None:
        self._draw = draw
        self.made: list[int] = []
        self.over = False
        """There are no more; what is asked for after that is 0."""

    @classmethod
    def of(cls, made: Sequence[int]) -> Choices:
        left = iter(made)
        return cls(lambda: next(left, None))

    def below(self, limit: int) -> int:
        value = self._draw()
        if value is None:
            self.over = True
            return 0
        self.made.append(value)
        return value % limit


class World:
    """One episode."""

    def __init__(self, server: Server, nodes: int = 3, slots: int = 2, most_runs: int = 12) -> None:
        self.server = server
        self.nodes = {f"n{index}": Node(f"n{index}") for index in range(nodes)}
        self.slots = slots
        self.most_runs = most_runs
        self.submitted: list[str] = []
        self.steps = 0
        self.gone_since: dict[str, float] = {}
        self.late: list[tuple[str, Delivery]] = []
        """Deliveries that are still on their way, though their agent has given them up."""
        self.late_orders: list[tuple[str, str, Sequence[Order]]] = []
        self._highest: dict[str, int] = {}
        for node in self.nodes.values():
            node.start(0.0)

    # One step

    def step(self, choices: Choices) -> None:
        """Something happens."""
        self.steps += 1
        number = choices.below(1000)
        node = list(self.nodes.values())[choices.below(len(self.nodes))]
        for limit, happen in self._HAPPENINGS:
            if number < limit:
                happen(self, node, choices)
                return

    def _work(self, node: Node, choices: Choices) -> None:
        """Something goes on at a node: a preparation ends, a rank prints or ends."""
        keys = list(node.folders)
        if not keys or node.agent is None:
            return
        key = keys[choices.below(len(keys))]
        folder, now = node.folders[key], self.server.now
        if folder.phase is Phase.PREPARING:
            node.prepare(key, refuse=choices.below(20) == 0, now=now)
        elif folder.phase is Phase.RUNNING and folder.running:
            rank = folder.running[choices.below(len(folder.running))]
            what = choices.below(10)
            if folder.stopped or what == 0:
                node.exit(key, rank, *((None, 15) if folder.stopped and what < 8 else (0, None)), now=now)
            elif what == 1:
                node.exit(key, rank, *((1, None) if choices.below(2) else (None, 9)), now=now)
            else:
                folder.printed += 1 + what

    def _deliver(self, node: Node, choices: Choices) -> None:
        if node.agent is None or not node.greeted:
            return
        delivery = delivery_of(node)
        if not delivery.events and not delivery.chunks and choices.below(3):
            return
        fate = choices.below(10)
        if node.cut_off or fate == 0:
            # Lost on the way, or for ever late.
            if fate < 3:
                self.late.append((node.name, delivery))
            return
        answer = self.server.deliver(node.name, delivery)
        if fate == 2:
            self.late.append((node.name, delivery))
        if fate != 1:
            self._acknowledged(node, delivery, answer)
        self._check(delivery.events)

    def _acknowledged(self, node: Node, delivery: Delivery, answer: Answer) -> None:
        if node.agent != delivery.agent:
            return
        acknowledge(node, delivery, answer, self.server.now)

    def _fetch_orders(self, node: Node, choices: Choices) -> None:
        if node.agent is None or node.cut_off:
            return
        fate = choices.below(12)
        if not node.greeted:
            if fate == 0:
                return
            self.server.hello(node.name, node.agent, node.holding)
            node.greeted = fate != 1
            return
        orders = self.server.orders(node.name, node.agent)
        if orders is None:
            node.greeted = False
        elif fate == 0:
            self.late_orders.append((node.name, node.agent, orders))
        elif fate > 1:
            node.apply(orders, self.server.now)

    def _submit(self, _node: Node, choices: Choices) -> None:
        if len(self.submitted) >= self.most_runs:
            return
        run = f"r{len(self.submitted)}"
        self.submitted.append(run)
        self.server.submit(run, 1 + choices.below(2), 1 + choices.below(self.slots))
        self.server.schedule()

    def _cancel(self, _node: Node, choices: Choices) -> None:
        if self.submitted:
            self.server.cancel(self.submitted[choices.below(len(self.submitted))], force=bool(choices.below(2)))

    def _crash(self, node: Node, _choices: Choices) -> None:
        if node.agent is not None:
            node.crash()

    def _revive(self, node: Node, _choices: Choices | None = None) -> None:
        if node.agent is None:
            node.start(self.server.now)

    def _wipe(self, node: Node, _choices: Choices) -> None:
        """The machine is replaced: what lay on its disk is gone."""
        node.crash()
        node.folders.clear()

    def _cut_off(self, node: Node, _choices: Choices) -> None:
        node.cut_off = True

    def _heal(self, node: Node, _choices: Choices) -> None:
        node.cut_off = False

    def _restart(self, _node: Node, _choices: Choices) -> None:
        """A new server knows no agent; agents hear so at their next call."""
        self.server.restart()

    def _schedule(self, _node: Node, _choices: Choices) -> None:
        self.server.schedule()

    def _wait(self, _node: Node, choices: Choices) -> None:
        self._pass_time(0.2 + choices.below(30) / 10)

    def _late_delivery(self, _node: Node, choices: Choices) -> None:
        if self.late:
            name, delivery = self.late.pop(choices.below(len(self.late)))
            answer = self.server.deliver(name, delivery)
            if choices.below(2):
                self._acknowledged(self.nodes[name], delivery, answer)
            self._check(delivery.events)

    def _late_order(self, _node: Node, choices: Choices) -> None:
        """An old answer arrives after a newer one, as long as the agent lives that asked for it."""
        if self.late_orders:
            name, agent, orders = self.late_orders.pop(choices.below(len(self.late_orders)))
            node = self.nodes[name]
            # One thread asks for orders, so an old answer is only applied before the next call.
            if node.agent == agent and self.server.orders(name, agent) == orders:
                node.apply(orders, self.server.now)

    def _pass_time(self, seconds: float) -> None:
        self.server.now += seconds
        for node in self.nodes.values():
            away = node.agent is None or node.cut_off
            if not away:
                self.gone_since.pop(node.name, None)
                continue
            since = self.gone_since.setdefault(node.name, self.server.now)
            limit_s = 10.0 if node.agent is None else 40.0
            if node.agent is None or self.server.now - since > 30.0:
                self.server.lose(node.name, give_up=self.server.now - since > limit_s)
        self.server.watch()
        self.server.schedule()

    _HAPPENINGS = (
        (420, _work),
        (640, _deliver),
        (830, _fetch_orders),
        (870, _submit),
        (900, _wait),
        (920, _schedule),
        (926, _cancel),
        (932, _crash),
        (934, _wipe),
        (958, _revive),
        (964, _cut_off),
        (984, _heal),
        (989, _restart),
        (995, _late_delivery),
        (1000, _late_order),
    )
    """What happens when a number below so many is drawn."""

    # What must hold

    def _check(self, events: Sequence[Event]) -> None:
        if events or self.steps % 64 == 0:
            check(self.server.runs(), self.slots, self._highest)

    def settle(self) -> None:
        """No fault any more: every run ends, every node is empty, and nothing was lost or repeated."""
        for node in self.nodes.values():
            node.cut_off = False
            self._revive(node)
        self.late.clear()
        self.late_orders.clear()
        for _ in range(CALM_ROUNDS):
            for node in self.nodes.values():
                self._calm(node)
            self._pass_time(0.5)
            runs = self.server.runs()
            check(runs, self.slots, self._highest)
            if all(run.status in states.TERMINAL for run in runs) and not any(n.folders for n in self.nodes.values()):
                break
        else:
            self._stuck()
        for node in self.nodes.values():
            for key, lines in node.delivered.items():
                self.server.check_bytes(key, node.name, lines)
        known = sorted(run.id for run in self.server.runs())
        if known != sorted(self.submitted):
            raise Broken(f"submitted {sorted(self.submitted)}, known {known}")

    def _calm(self, node: Node) -> None:
        assert node.agent is not None
        now = self.server.now
        orders = self.server.orders(node.name, node.agent) if node.greeted else None
        if orders is None:
            self.server.hello(node.name, node.agent, node.holding)
            node.greeted = True
            orders = self.server.orders(node.name, node.agent) or ()
        node.apply(orders, now)
        for key, folder in list(node.folders.items()):
            if folder.phase is Phase.PREPARING:
                node.prepare(key, refuse=False, now=now)
            for rank in folder.running:
                node.exit(key, rank, *((None, 15) if folder.stopped else (0, None)), now=now)
        delivery = delivery_of(node)
        acknowledge(node, delivery, self.server.deliver(node.name, delivery), now)

    def _stuck(self) -> None:
        stuck = [run for run in self.server.runs() if run.status not in states.TERMINAL]
        left = {node.name: {k: v.phase.name for k, v in node.folders.items()} for node in self.nodes.values()}
        raise Broken(f"stuck: {stuck}; folders: {left}")


def delivery_of(node: Node) -> Delivery:
    """Everything that the server has not acknowledged."""
    assert node.agent is not None
    events = tuple(event for folder in node.folders.values() for event in _due(folder))
    chunks = tuple(
        Chunk(key, folder.acknowledged, folder.printed - folder.acknowledged)
        for key, folder in node.folders.items()
        if folder.printed > folder.acknowledged
    )
    return Delivery(node.agent, events, chunks, node.holding)


def _due(folder: Folder) -> Sequence[Event]:
    """That all is delivered is said after the bytes are."""
    if folder.printed > folder.acknowledged:
        return [event for event in folder.told if not isinstance(event.data, Delivered)]
    return folder.told


def acknowledge(node: Node, delivery: Delivery, answer: Answer, now: float) -> None:
    for key, length in answer.lengths.items():
        folder = node.folders.get(key)
        if folder is not None:
            if length > folder.printed:
                raise Broken(f"{key} on {node.name}: printed {folder.printed}, the server has {length}")
            folder.acknowledged = max(folder.acknowledged, length)
    sent = {id(event) for event in delivery.events}
    for folder in node.folders.values():
        folder.told = [event for event in folder.told if id(event) not in sent]
        if folder.phase is Phase.ENDED and not folder.told:
            folder.phase = Phase.DELIVERED
    for key in answer.forget:
        folder = node.folders.get(key)
        if folder is not None and folder.phase in (Phase.ENDED, Phase.DELIVERED):
            if folder.acknowledged < folder.printed:
                raise Broken(f"{key} on {node.name} is forgotten with {folder.printed - folder.acknowledged} lines")
            if folder.launched:
                node.delivered[key] = folder.printed
        node.forget(key, now)


def check(runs: Sequence[RunState], slots: int, highest: dict[str, int]) -> None:
    """What holds at every moment."""
    taken: dict[str, int] = {}
    for run in runs:
        numbers = [attempt.number for attempt in run.attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            raise Broken(f"the attempts of {run.id} are {numbers}")
        if len(numbers) < highest.get(run.id, 0):
            raise Broken(f"{run.id} has lost attempts: {numbers}")
        highest[run.id] = len(numbers)
        live = [attempt.number for attempt in run.attempts if not attempt.over]
        if len(live) > 1 or (live and live[0] != numbers[-1]):
            raise Broken(f"the attempts {live} of {run.id} live at once")
        if live and run.status in (*states.TERMINAL, states.QUEUED):
            raise Broken(f"{run.id} is {run.status} while attempt {live[0]} lives")
        if not live and run.status in states.ACTIVE:
            raise Broken(f"{run.id} is {run.status}, and no attempt lives")
        for attempt in run.attempts:
            names = [item.node for item in attempt.placements]
            if len(set(names)) != len(names):
                raise Broken(f"attempt {attempt.number} of {run.id} has one node twice: {names}")
            for item in attempt.placements:
                if item.phase in states.HOLDS_RESOURCES:
                    taken[item.node] = taken.get(item.node, 0) + item.ranks
    for node, ranks in taken.items():
        if ranks > slots:
            raise Broken(f"{node} has {slots} slots, and {ranks} are taken")
