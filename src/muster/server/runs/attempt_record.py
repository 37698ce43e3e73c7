"""An attempt's records: loaded once, changed in memory, and only the changes written back, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Table, insert

from muster.control.lifecycle import AttemptView, NodeView, RankView
from muster.control.scheduling.model import Place
from muster.host import clock
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import (
    ADD_EVENT,
    ATTEMPT,
    PLACEMENT,
    PLACEMENTS,
    RANK,
    RANKS,
    RUN,
    Recorded,
    event_row,
)
from muster.server.nodes import allocations
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.states import Level, RunStatus
from muster.wire.stream import Note, StateChanged

_ADD_ATTEMPT = insert(tables.attempts)
_ADD_PLACEMENT = insert(tables.placements)
_ADD_RANK = insert(tables.ranks)

Columns = dict[str, Json]


class Record:
    """A row that tracks its changes."""

    def __init__(self, values: Columns) -> None:
        self._values = values
        self.changes: Columns = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def set(self, **values: Any) -> None:
        self._values |= values
        self.changes |= values


class AttemptRecord:
    """One attempt of a run, with its nodes and ranks."""

    def __init__(self, run: Record, attempt: Record, nodes: list[Record], ranks: list[Record]) -> None:
        self.run = run
        self.attempt = attempt
        self.nodes = nodes
        self.ranks = ranks
        self._new = False
        self._new_ranks = False
        self._events: list[Columns] = []

    @classmethod
    def load(cls, transaction: Transaction, run_id: str, number: int | None = None) -> AttemptRecord | None:
        """The attempt (the current one unless a number is given); None when there is none."""
        run = RUN.first(transaction, run_id)
        chosen = number if number is not None else run.attempt if run is not None else 0
        attempt = ATTEMPT.first(transaction, run_id, chosen) if run is not None and chosen else None
        if run is None or attempt is None:
            return None
        nodes = PLACEMENTS.rows(transaction, run_id, chosen)
        ranks = RANKS.rows(transaction, run_id, chosen)
        return cls(_record(run), _record(attempt), [_record(row) for row in nodes], [_record(row) for row in ranks])

    @classmethod
    def create(
        cls,
        transaction: Transaction,
        run_id: str,
        places: Sequence[Place],
        name: Callable[[str, int, int], str] | None = None,
    ) -> AttemptRecord:
        """A new attempt of a run on its places; `name` names nodes that are yet to come."""
        run = _record(RUN.one(transaction, run_id))
        number = run.attempt + 1
        run.set(attempt=number, retry_at=None)
        key: Columns = {"run_id": run_id, "number": number}
        attempt: Columns = {**key, "status": states.PREPARING, "created_at": clock.now(), "timed_out": False}
        nodes = [
            {
                **_blank(tables.placements),
                **key,
                "node_rank": node_rank,
                "cluster": run.compute,
                "node": name(run_id, number, node_rank) if name else place.node.name,
                "host": place.node.host,
                "address": place.node.address,
                "cpus": place.node.cpus,
                "gpus": list(place.gpus),
                "ranks": place.ranks,
                "price_per_hour": place.node.price_per_hour,
                "phase": states.ORDERED,
                "lost": False,
                "ports": [],
                "leaving": False,
            }
            for node_rank, place in enumerate(places)
        ]
        transaction.execute(_ADD_ATTEMPT, attempt)
        transaction.execute(_ADD_PLACEMENT, nodes)
        record = cls(run, Record({**_blank(tables.attempts), **attempt}), [Record(node) for node in nodes], [])
        record._new = True
        return record

    @property
    def is_current(self) -> bool:
        return bool(self.run.attempt == self.attempt.number)

    def node(self, name: str) -> Record | None:
        return next((node for node in self.nodes if node.node == name), None)

    def rank(self, number: int) -> Record | None:
        return next((rank for rank in self.ranks if rank.rank == number), None)

    def add_ranks(self, rows: Sequence[Columns]) -> None:
        key = {"run_id": self.run.id, "number": self.attempt.number}
        fresh = {**_blank(tables.ranks), **key, "state": "waiting", "expected": False, "evidence": {}}
        self.ranks = [Record({**fresh, **row}) for row in rows]
        self._new_ranks = True

    def announce(self, event: Recorded) -> None:
        """Record an event for the followers of the run."""
        self._events.append(event_row(self.run.id, event))

    def note(self, level: Level, text: str) -> None:
        self.announce(Note(level, text, clock.now()))

    def move(self, status: RunStatus, **columns: Any) -> None:
        self.run.set(status=status, **columns)
        self.announce(StateChanged(status, clock.now()))

    def view(self, context: Context) -> AttemptView:
        """The input of the lifecycle decision."""
        return AttemptView(
            run_status=self.run.status,
            nodes=[
                NodeView(
                    row.node_rank,
                    row.node,
                    row.phase,
                    row.lost,
                    row.node in context.hub.contacts,
                    bool(row.refusal) and not row.refusal.get("late"),
                    row.leaving,
                )
                for row in self.nodes
            ],
            ranks=[
                RankView(
                    row.rank,
                    row.node_rank,
                    row.essential,
                    row.state,
                    row.exit_code,
                    row.signal,
                    row.expected,
                    bool(row.evidence.get("waited")),
                )
                for row in self.ranks
            ],
            planned=self.attempt.plan is not None,
            cancel=self.run.cancel,
            timed_out=self.attempt.timed_out,
            stop_reason=self.attempt.stop_reason,
            ending_pending=self._ending_pending(),
        )

    def _ending_pending(self) -> bool:
        """Whether nodes were taken back and their engine, which is asked again, has not given a reason yet."""
        if self.attempt.ending is not None or not any(node.leaving for node in self.nodes):
            return False
        brought = all(allocations.is_brought(n.node, n.run_id, n.number, n.node_rank) for n in self.nodes)
        return brought and all(node.phase in states.IS_OPEN for node in self.nodes)

    def save(self, context: Context, transaction: Transaction) -> None:
        """Write what changed, and wake those concerned once it is durable."""
        number = self.attempt.number
        if self.run.changes:
            RUN.set(transaction, self.run.id, **self.run.changes)
        if self.attempt.changes:
            ATTEMPT.set(transaction, self.run.id, number, **self.attempt.changes)
        for node in self.nodes:
            if node.changes:
                PLACEMENT.set(transaction, self.run.id, number, node.node_rank, **node.changes)
        if self._new_ranks:
            transaction.execute(_ADD_RANK, [rank._values for rank in self.ranks])
        else:
            for rank in self.ranks:
                if rank.changes:
                    RANK.set(transaction, self.run.id, number, rank.rank, **rank.changes)
        if self._events:
            transaction.execute(ADD_EVENT, self._events)
        orders_changed = self._new or self.attempt.changes or any(node.changes for node in self.nodes)
        nodes = [node.node for node in self.nodes] if orders_changed or self._new_ranks else []
        freed = any(node.changes.get("phase") not in (None, *states.HOLDS_RESOURCES) for node in self.nodes)
        run_id = self.run.id
        transaction.frees_nodes = transaction.frees_nodes or freed or self.run.status in states.TERMINAL
        transaction.after_commit.append(lambda: context.hub.changed(nodes, [run_id]))
        transaction.after_commit.append(lambda: context.runs.unrecorded.add(run_id))


def _blank(table: Table) -> Columns:
    return dict.fromkeys(table.columns.keys())


def _record(row: Any) -> Record:
    return Record(dict(row._mapping))
