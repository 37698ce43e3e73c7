"""A server of the pure decisions alone: lifecycle, retries, orders, scheduling and verdicts over plain records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulated.world import Answer, AttemptState, Broken, Delivery, Placement, RunState

from muster.control import retry
from muster.control.lifecycle import AttemptView, Finish, Go, Move, NodeView, RankView, Stop, decide
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import Gang, Need, Node, Part, Rules, Running
from muster.control.scheduling.passes import schedule
from muster.control.scheduling.queue import Queue
from muster.diagnosis.verdict import judge
from muster.server.nodes.orders import Standing, stop_order
from muster.wire import states
from muster.wire.node.agents import AttemptKey, Ended, Event, Exited, Leaving, Order, Prepared, Refused, Started
from muster.wire.node.plan import NodePlan, RankPlan
from muster.wire.verdicts import CANCELLED, COMPLETED, Evidence, NodeEvidence, RankEvidence, Refusal

_CLUSTER = "c"
_STATUS = {COMPLETED: states.COMPLETED, CANCELLED: states.CANCELED}
POLICY = retry.Policy(node_loss=2, platform=2, user_error=1, backoff_s=1.0)


@dataclass
class NodeRow:
    node: str
    ranks: int
    phase: str = states.ORDERED
    lost: bool = False
    refusal: Refusal | None = None
    leaving: bool = False
    length: int = 0


@dataclass
class RankRow:
    rank: int
    node_rank: int
    state: str = "waiting"
    exit_code: int | None = None
    signal: int | None = None
    expected: bool = False


@dataclass
class AttemptRow:
    number: int
    nodes: list[NodeRow]
    ranks: list[RankRow] = field(default_factory=list)
    planned: bool = False
    stop_reason: str | None = None
    grace_s: float = 0.0
    over: bool = False
    code: str = ""
    node: str | None = None


@dataclass
class RunRow:
    id: str
    nodes: int
    ranks: int
    seq: int
    status: states.RunStatus = states.QUEUED
    queued_at: float = 0.0
    retry_at: float = 0.0
    excluded: frozenset[str] = frozenset()
    cancel: str | None = None
    attempts: list[AttemptRow] = field(default_factory=list)


class PureServer:
    """Applies what the pure functions decide, as `server.runs.attempts` does."""

    def __init__(self, nodes: int = 3, slots: int = 2) -> None:
        self.now = 0.0
        self._offers = [Node(f"n{index}", f"n{index}", "", slots) for index in range(nodes)]
        self._runs: dict[str, RunRow] = {}
        self._contacts: dict[str, str] = {}
        self._dirty = True

    def submit(self, run: str, nodes: int, ranks: int) -> None:
        self._runs[run] = RunRow(run, nodes, ranks, len(self._runs), queued_at=self.now)
        self._dirty = True

    def hello(self, node: str, agent: str, holding: Sequence[AttemptKey]) -> None:
        self._contacts[node] = agent
        held = set(holding)
        for run, attempt, row in self._on(node, (states.PREPARED, states.STARTED, states.ENDED)):
            if (run.id, attempt.number) not in held:
                # A new life of the agent that does not know it: it is lost.
                self._lose(run, attempt, row, give_up=True)
        for run, attempt, _ in self._on(node, states.IS_OPEN):
            self._go_on(run, attempt)

    def orders(self, node: str, agent: str) -> Sequence[Order] | None:
        if self._contacts.get(node) != agent:
            return None
        wanted = (*states.HOLDS_RESOURCES, states.GIVEN_UP)
        return [self._order(run, attempt, row) for run, attempt, row in self._on(node, wanted)]

    def _order(self, run: RunRow, attempt: AttemptRow, row: NodeRow) -> Order:
        rank = attempt.nodes.index(row)
        phase, count = row.phase, len(attempt.nodes)
        stop = stop_order(Standing(run.id, attempt.number, rank, count, phase, attempt.stop_reason, attempt.grace_s))
        if stop is not None:
            return stop
        plan = None
        if attempt.planned:
            mine = [item.rank for item in attempt.ranks if item.node_rank == rank]
            ranks = tuple(RankPlan(n, rank, n, (), {}, f"user_logs/{n}") for n in mine)
            plan = NodePlan(rank, row.node, "", (), ranks)
        return Order(run.id, attempt.number, "go" if plan else "prepare", node_rank=rank, num_nodes=count, plan=plan)

    def deliver(self, node: str, delivery: Delivery) -> Answer:
        lengths = {}
        for chunk in delivery.chunks:
            row = self._row(chunk.key, node)
            if row is None or row.phase == states.CLOSED:
                lengths[chunk.key] = chunk.offset + chunk.size
                continue
            if chunk.offset <= row.length:
                row.length = max(row.length, chunk.offset + chunk.size)
            lengths[chunk.key] = row.length
        keys = dict.fromkeys(event.key for event in delivery.events)
        for key in keys:
            run = self._runs.get(key[0])
            attempt = run.attempts[key[1] - 1] if run is not None and key[1] <= len(run.attempts) else None
            row = next((item for item in attempt.nodes if item.node == node), None) if attempt else None
            if run is None or attempt is None or row is None or row.phase == states.CLOSED:
                continue
            for event in delivery.events:
                if event.key == key:
                    self._record(attempt, row, event)
            self._go_on(run, attempt)
        return Answer(lengths, tuple(key for key in delivery.holding if self._is_closed(key, node)))

    def cancel(self, run: str, force: bool) -> None:
        row = self._runs[run]
        if row.status in states.TERMINAL:
            return
        if row.status == states.QUEUED:
            row.status, row.cancel, self._dirty = states.CANCELED, "cancel", True
            return
        ended = row.status == states.FINALIZING
        row.cancel = "abandon" if ended else "kill" if force else row.cancel or "cancel"
        self._go_on(row, row.attempts[-1])

    def lose(self, node: str, give_up: bool) -> None:
        self._contacts.pop(node, None)
        for run, attempt, row in self._on(node, states.IS_OPEN):
            self._lose(run, attempt, row, give_up)
            self._go_on(run, attempt)

    def watch(self) -> None:
        if any(run.status == states.QUEUED for run in self._runs.values()):
            self._dirty = True

    def restart(self) -> None:
        self._contacts.clear()
        self._dirty = True
        for run in self._runs.values():
            if run.status in states.ACTIVE:
                self._go_on(run, run.attempts[-1])

    def schedule(self) -> None:
        if not self._dirty:
            return
        self._dirty = False
        queued = [
            Gang(
                run.id,
                run.id,
                _CLUSTER,
                Need(run.nodes, run.ranks, 0),
                queued_at=run.queued_at,
                seq=run.seq,
                not_before=run.retry_at,
                excluded=run.excluded,
            )
            for run in self._runs.values()
            if run.status == states.QUEUED
        ]
        if not queued:
            return
        capacity = Capacity({_CLUSTER: self._offers})
        for run in self._runs.values():
            parts = [
                Part(row.node, row.node, row.ranks)
                for attempt in run.attempts
                for row in attempt.nodes
                if row.phase in states.HOLDS_RESOURCES
            ]
            if parts:
                capacity.hold(Running(run.id, run.id, _CLUSTER, tuple(parts)), self.now)
        decision = schedule({_CLUSTER: Queue(queued)}, capacity, {_CLUSTER: Rules()}, self.now)
        for start in decision.starts:
            run = self._runs[start.run_id]
            nodes = [NodeRow(place.node.name, place.ranks) for place in start.places]
            run.attempts.append(AttemptRow(len(run.attempts) + 1, nodes))
            self._go_on(run, run.attempts[-1])

    def runs(self) -> list[RunState]:
        return [
            RunState(
                run.id,
                run.status,
                tuple(
                    AttemptState(
                        item.number, item.over, tuple(Placement(row.node, row.phase, row.ranks) for row in item.nodes)
                    )
                    for item in run.attempts
                ),
            )
            for run in self._runs.values()
        ]

    def check_bytes(self, key: AttemptKey, node: str, lines: int) -> None:
        row = self._row(key, node)
        if row is None or row.length != lines:
            raise Broken(f"{key} on {node} printed {lines} lines, the server has {row.length if row else None}")

    def close(self) -> None:
        """There is nothing to close."""

    # Records

    def _on(self, node: str, phases: Sequence[str]) -> list[tuple[RunRow, AttemptRow, NodeRow]]:
        return [
            (run, attempt, row)
            for run in self._runs.values()
            for attempt in run.attempts
            for row in attempt.nodes
            if row.node == node and row.phase in phases
        ]

    def _row(self, key: AttemptKey, node: str) -> NodeRow | None:
        run = self._runs.get(key[0])
        if run is None or key[1] > len(run.attempts):
            return None
        return next((row for row in run.attempts[key[1] - 1].nodes if row.node == node), None)

    def _is_closed(self, key: AttemptKey, node: str) -> bool:
        row = self._row(key, node)
        return row is None or row.phase == states.CLOSED

    def _record(self, attempt: AttemptRow, row: NodeRow, event: Event) -> None:
        data = event.data
        if isinstance(data, Prepared):
            if row.phase == states.ORDERED:
                row.phase = states.PREPARED
        elif isinstance(data, Refused):
            row.refusal = data
        elif isinstance(data, Started):
            if row.phase in (states.ORDERED, states.PREPARED):
                row.phase = states.STARTED
            for started in data.ranks:
                rank = attempt.ranks[started.rank]
                if rank.state == "waiting":
                    rank.state = "running"
        elif isinstance(data, Exited):
            rank = attempt.ranks[data.rank]
            if rank.state != "ended":
                rank.state, rank.exit_code, rank.signal = "ended", data.exit_code, data.signal
                rank.expected = data.expected
        elif isinstance(data, Leaving):
            row.leaving = True
        elif isinstance(data, Ended):
            if row.phase in states.HOLDS_RESOURCES:
                row.phase = states.ENDED
                self._dirty = True
            row.lost = row.lost or data.reason == "agent_lost"
        elif row.phase == states.GIVEN_UP:
            row.phase = states.CLOSED
        elif row.phase in (*states.HOLDS_RESOURCES, states.ENDED):
            row.phase = states.DELIVERED
            self._dirty = True

    def _lose(self, run: RunRow, attempt: AttemptRow, row: NodeRow, give_up: bool) -> None:
        if row.phase == states.ORDERED:
            if not give_up:
                return
            row.lost, row.refusal = True, Refusal("platform", "its agent did not come")
        elif row.phase in states.HOLDS_RESOURCES:
            row.lost = True
        elif row.phase == states.ENDED and give_up:
            row.refusal = row.refusal or Refusal("node_lost", "it went away", late=True)
        if give_up:
            row.phase = states.GIVEN_UP
            self._dirty = True

    # Decisions

    def _go_on(self, run: RunRow, attempt: AttemptRow) -> None:
        if attempt is not run.attempts[-1]:
            return
        while not attempt.over and run.status not in states.TERMINAL:
            actions = decide(self._view(run, attempt))
            if not actions:
                return
            for action in actions:
                if isinstance(action, Go):
                    attempt.planned = True
                    total = [(node, n) for node in range(len(attempt.nodes)) for n in range(run.ranks)]
                    attempt.ranks = [RankRow(number, node) for number, (node, _) in enumerate(total)]
                elif isinstance(action, Stop):
                    attempt.stop_reason, attempt.grace_s = action.reason, action.grace_s
                    for row in attempt.nodes:
                        if row.phase == states.ORDERED and row.node not in self._contacts:
                            row.phase, self._dirty = states.GIVEN_UP, True
                elif isinstance(action, Move):
                    run.status = action.status
                elif isinstance(action, Finish):
                    self._finish(run, attempt)

    def _view(self, run: RunRow, attempt: AttemptRow) -> AttemptView:
        return AttemptView(
            run.status,
            [
                NodeView(
                    number,
                    row.node,
                    row.phase,
                    row.lost,
                    row.node in self._contacts,
                    row.refusal is not None and not row.refusal.late,
                    row.leaving,
                )
                for number, row in enumerate(attempt.nodes)
            ],
            [
                RankView(row.rank, row.node_rank, True, row.state, row.exit_code, row.signal, row.expected)
                for row in attempt.ranks
            ],
            attempt.planned,
            run.cancel,
            False,
            attempt.stop_reason,
        )

    def _finish(self, run: RunRow, attempt: AttemptRow) -> None:
        verdict = judge(
            Evidence(
                tuple(
                    RankEvidence(
                        rank=row.rank,
                        node=attempt.nodes[row.node_rank].node,
                        exit_code=row.exit_code,
                        signal=row.signal,
                        expected=row.expected,
                        state=row.state,
                        ended_at=self.now,
                    )
                    for row in attempt.ranks
                ),
                tuple(NodeEvidence(n, row.node, row.lost, row.leaving, row.refusal)
                      for n, row in enumerate(attempt.nodes)),
                attempt.stop_reason,
            )
        )  # fmt: skip
        attempt.over, attempt.code, attempt.node = True, verdict.code, verdict.node
        self._dirty = True
        for row in attempt.nodes:
            if row.phase == states.DELIVERED:
                row.phase = states.CLOSED
        past = [retry.Past(item.code, item.node) for item in run.attempts]
        following = retry.decide(past, POLICY, run.id)
        if isinstance(following, retry.Retry) and not run.cancel:
            run.status, run.queued_at = states.QUEUED, self.now
            run.retry_at, run.excluded = self.now + following.delay_s, frozenset(following.exclude)
        else:
            run.status = _STATUS.get(verdict.code, states.FAILED)
