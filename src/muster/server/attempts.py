"""Attempts: load what is recorded, decide, apply. Everything here runs inside one write."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select

from muster.control import states
from muster.control.lifecycle import AttemptView, Finish, Go, Move, NodeView, RankView, Stop, decide
from muster.control.schedule import Start
from muster.control.verdict import COMPLETED, Evidence, NodeEvidence, RankEvidence, Verdict, judge
from muster.job.spec import JobSpec
from muster.launch.model import Plan, Slot, to_json
from muster.launch.plan import plan as make_plan
from muster.launch.plan import ports_wanted
from muster.protocol import Event
from muster.server import ingest, tables
from muster.server.context import Context
from muster.server.database import Transaction
from muster.server.records import ATTEMPT, ON_NODE, PLACEMENT, PLACEMENTS, RANK, RANKS, RUN, RunRow, add_event, move_run

_TAIL_BYTES = 64 << 10
_TAILS = 16
_NOT_ENDED = ("running", "waiting")
_ADD_ATTEMPT = insert(tables.attempts)
_ADD_PLACEMENT = insert(tables.placements)
_ADD_RANK = insert(tables.ranks)


def begin(context: Context, transaction: Transaction, start: Start) -> None:
    """Give a queued run its nodes: a new attempt, ordered on each of them."""
    run = RUN.one(transaction, start.run_id)
    number = run.attempt + 1
    now = time.time()
    transaction.execute(
        _ADD_ATTEMPT,
        {"run_id": run.id, "number": number, "status": states.PREPARING, "created_at": now, "timed_out": False},
    )
    transaction.execute(
        _ADD_PLACEMENT,
        [
            {
                "run_id": run.id,
                "number": number,
                "node_rank": node_rank,
                "cluster": run.compute,
                "node": place.node.name,
                "host": place.node.host,
                "address": place.node.address,
                "cpus": place.node.cpus,
                "gpus": list(place.gpus),
                "ranks": place.ranks,
                "phase": states.ORDERED,
                "lost": False,
                "ports": [],
            }
            for node_rank, place in enumerate(start.places)
        ],
    )
    RUN.set(transaction, run.id, attempt=number)
    spec = JobSpec.model_validate(run.spec, strict=False)
    if not any(ports_wanted(spec, rank).count for rank in range(len(start.places))):
        # Nothing has to be agreed between the nodes first: the order to prepare carries the plan.
        _plan(context, transaction, run.id, number)
    advance(context, transaction, run.id)
    _announce(context, transaction, run.id, [place.node.name for place in start.places])


def apply_event(context: Context, transaction: Transaction, node: str, event: Event) -> bool:
    """Record what an agent says of an attempt; False when the attempt is not this node's."""
    placement = ON_NODE.first(transaction, event.run, event.attempt, node)
    if placement is None or placement.phase == states.CLOSED:
        return False
    values: dict[str, Any] = {}
    if event.kind == "prepared":
        values = {"ports": list(event.data.get("ports", ()))}
        if event.data.get("address"):
            values["address"] = event.data["address"]
        if placement.phase == states.ORDERED:
            values["phase"] = states.PREPARED
    elif event.kind == "refused":
        values = {"refusal": dict(event.data)}
        add_event(transaction, event.run, "note", {"level": "error", "text": f"{node}: {event.data.get('message')}"})
    elif event.kind == "started":
        if placement.phase in (states.ORDERED, states.PREPARED):
            values = {"phase": states.STARTED}
        for item in event.data.get("ranks", ()):
            _record_start(transaction, event, item)
    elif event.kind == "exited":
        _record_exit(transaction, event, placement.node)
    elif event.kind == "timed_out":
        ATTEMPT.set(transaction, event.run, event.attempt, timed_out=True)
    elif event.kind == "ended":
        if placement.phase in states.HOLDS_RESOURCES:
            values = {"phase": states.ENDED}
        if event.data.get("reason") == "agent_lost":
            values["lost"] = True
        transaction.after_commit.append(lambda: context.hub.changed(queue=True))
    elif event.kind == "delivered" and placement.phase in (*states.HOLDS_RESOURCES, states.ENDED):
        values = {"phase": states.DELIVERED}
        _record_notes(transaction, event)
    if values:
        ON_NODE.set(transaction, event.run, event.attempt, node, **values)
    return True


def advance(context: Context, transaction: Transaction, run_id: str) -> None:
    """Decide and apply until the attempt rests."""
    for _ in range(8):
        run = RUN.first(transaction, run_id)
        if run is None or run.status in states.TERMINAL or run.attempt == 0:
            return
        attempt = ATTEMPT.one(transaction, run.id, run.attempt)
        if attempt.ended_at is not None:
            return
        view = _view(context, transaction, run, attempt)
        actions = decide(view)
        if not actions:
            return
        finished = False
        for action in actions:
            if isinstance(action, Go):
                _plan(context, transaction, run.id, run.attempt)
            elif isinstance(action, Stop):
                _stop(context, transaction, run, action)
            elif isinstance(action, Move):
                _move(transaction, run, action.status)
            elif isinstance(action, Finish):
                _finish(context, transaction, run)
                finished = True
        _announce(context, transaction, run.id, [node.name for node in view.nodes])
        if finished:
            return


def lose_node(context: Context, transaction: Transaction, node: str, give_up: bool, why: str = "") -> None:
    """A node's agent is gone: its attempts end; with `give_up` nothing more is expected of it."""
    placements = tables.placements
    rows = transaction.execute(
        select(placements).where(placements.c.node == node, placements.c.phase.in_(states.IS_OPEN))
    ).all()
    for row in rows:
        values: dict[str, Any] = {}
        if row.phase == states.ORDERED:
            # Nothing has begun there: the next agent of the node takes the order up.
            if not give_up:
                continue
            text = f"the agent of {node} did not come" + (f": {why}" if why else "")
            values = {"lost": True, "refusal": {"code": "platform", "message": text}}
            add_event(transaction, row.run_id, "note", {"level": "error", "text": text})
        elif row.phase in states.HOLDS_RESOURCES and not row.lost:
            values["lost"] = True
            text = f"node {node} or its agent went away"
            add_event(transaction, row.run_id, "note", {"level": "error", "text": text})
        if give_up:
            values["phase"] = states.GIVEN_UP
        if values:
            PLACEMENT.set(transaction, row.run_id, row.number, row.node_rank, **values)
    for run_id in sorted({row.run_id for row in rows}):
        advance(context, transaction, run_id)


def _view(context: Context, transaction: Transaction, run: RunRow, attempt: Any) -> AttemptView:
    nodes = PLACEMENTS.rows(transaction, run.id, run.attempt)
    ranks = RANKS.rows(transaction, run.id, run.attempt)
    return AttemptView(
        run_status=run.status,
        nodes=[
            NodeView(row.node_rank, row.node, row.phase, row.lost, row.node in context.hub.contacts, row.refusal)
            for row in nodes
        ],
        ranks=[
            RankView(row.rank, row.node_rank, row.essential, row.state, row.exit_code, row.signal, row.expected)
            for row in ranks
        ],
        planned=attempt.plan is not None,
        cancel=run.cancel,
        timed_out=attempt.timed_out,
        stop_reason=attempt.stop_reason,
    )


def _plan(context: Context, transaction: Transaction, run_id: str, number: int) -> None:
    run = RUN.one(transaction, run_id)
    rows = PLACEMENTS.rows(transaction, run_id, number)
    hosts = [row.host for row in rows]
    slots = [
        Slot(row.node, row.address, row.cpus, tuple(row.gpus), tuple(row.ports), hosts.count(row.host) > 1)
        for row in rows
    ]
    spec = JobSpec.model_validate(run.spec, strict=False)
    made: Plan = make_plan(spec, slots, run_id=run_id, attempt=number, python=run.python or "python")
    ATTEMPT.set(transaction, run_id, number, plan=to_json(made))
    transaction.execute(
        _ADD_RANK,
        [
            {
                "run_id": run_id,
                "number": number,
                "rank": rank.rank,
                "node_rank": rank.node_rank,
                "role": rank.role,
                "essential": rank.essential,
                "log": rank.log,
                "state": "waiting",
                "expected": False,
                "evidence": {},
            }
            for rank in made.ranks
        ],
    )
    for notice in made.notices:
        add_event(transaction, run_id, "note", {"level": "info", "text": notice})


def _stop(context: Context, transaction: Transaction, run: RunRow, action: Stop) -> None:
    ATTEMPT.set(transaction, run.id, run.attempt, stop_reason=action.reason, stop_grace_s=action.grace_s)
    for row in PLACEMENTS.rows(transaction, run.id, run.attempt):
        # An agent that never came has nothing to stop; should it come later, it finds no order.
        if row.phase == states.ORDERED and row.node not in context.hub.contacts:
            PLACEMENT.set(transaction, run.id, run.attempt, row.node_rank, phase=states.GIVEN_UP)


def _move(transaction: Transaction, run: RunRow, status: str) -> None:
    columns: dict[str, Any] = {}
    if status == states.RUNNING:
        columns["started_at"] = run.started_at or time.time()
        ATTEMPT.set(transaction, run.id, run.attempt, started_at=time.time(), status=status)
    move_run(transaction, run.id, status, **columns)


def _finish(context: Context, transaction: Transaction, run: RunRow) -> None:
    for stream, _size in context.streams.names(run.id, run.attempt):
        if stream.startswith("events/"):
            ingest.parse_events(context, transaction, run.id, run.attempt, stream)
    verdict = _judge(context, transaction, run)
    now = time.time()
    status = states.COMPLETED if verdict.code == COMPLETED else states.FAILED
    if verdict.code == "cancelled":
        status = states.CANCELED
    ATTEMPT.set(transaction, run.id, run.attempt, status=status, ended_at=now, verdict=verdict.to_json())
    for row in PLACEMENTS.rows(transaction, run.id, run.attempt):
        if row.phase == states.DELIVERED:
            PLACEMENT.set(transaction, run.id, run.attempt, row.node_rank, phase=states.CLOSED)
    move_run(transaction, run.id, status, ended_at=now, verdict=verdict.to_json())
    transaction.after_commit.append(lambda: context.hub.changed(queue=True))


def _judge(context: Context, transaction: Transaction, run: RunRow) -> Verdict:
    attempt = ATTEMPT.one(transaction, run.id, run.attempt)
    nodes = PLACEMENTS.rows(transaction, run.id, run.attempt)
    ranks = RANKS.rows(transaction, run.id, run.attempt)
    names = {row.node_rank: row.node for row in nodes}
    return judge(
        Evidence(
            ranks=_rank_evidence(context, run, ranks, names),
            nodes=[NodeEvidence(row.node_rank, row.node, row.lost, row.refusal) for row in nodes],
            stop_reason=attempt.stop_reason,
            cancel_by=run.cancel_by,
            timeout_s=run.spec.get("limits", {}).get("timeout"),
        )
    )


def _rank_evidence(context: Context, run: RunRow, ranks: Sequence[Any], names: dict[int, str]) -> list[RankEvidence]:
    found: list[RankEvidence] = []
    tails = 0
    for row in sorted(ranks, key=lambda item: item.ended_at or 0.0):
        bad = row.state == "ended" and not row.expected and row.exit_code != 0
        tail = ""
        if bad and tails < _TAILS:
            tail = context.streams.tail(run.id, run.attempt, row.log, _TAIL_BYTES)
            tails += 1
        found.append(
            RankEvidence(
                rank=row.rank,
                node=names.get(row.node_rank, f"node {row.node_rank}"),
                exit_code=row.exit_code,
                signal=row.signal,
                expected=row.expected,
                essential=row.essential,
                state=row.state,
                ended_at=row.ended_at,
                oom_killed=bool(row.evidence.get("oom_killed")),
                refusal=row.evidence.get("refusal"),
                lost_with=row.evidence.get("lost_with"),
                tail=tail,
            )
        )
    return found


def _record_start(transaction: Transaction, event: Event, item: dict[str, Any]) -> None:
    started_at = item.get("at", event.at)
    key = (event.run, event.attempt, item["rank"], "waiting")
    if RANK.set(transaction, *key, state="running", pid=item.get("pid"), started_at=started_at):
        add_event(transaction, event.run, "rank", {"rank": item["rank"], "state": "running"}, event.at)


def _record_exit(transaction: Transaction, event: Event, node: str) -> None:
    data = dict(event.data)
    values = {
        "state": "ended",
        "ended_at": data.get("at", event.at),
        "exit_code": data.get("exit_code"),
        "signal": data.get("signal"),
        "expected": bool(data.get("expected")),
        "evidence": {key: value for key, value in data.items() if key not in ("rank", "at", "exit_code", "signal")},
    }
    if any(RANK.set(transaction, event.run, event.attempt, data["rank"], state, **values) for state in _NOT_ENDED):
        told = {"rank": data["rank"], "node": node, "state": "ended"}
        told |= {"exit_code": data.get("exit_code"), "signal": data.get("signal")}
        add_event(transaction, event.run, "rank", told, event.at)


def _record_notes(transaction: Transaction, event: Event) -> None:
    for note in event.data.get("notes", ()):
        add_event(transaction, event.run, "note", {"level": "warning", "text": str(note)})


def _announce(context: Context, transaction: Transaction, run_id: str, nodes: list[str]) -> None:
    transaction.after_commit.append(lambda: context.hub.changed(nodes=nodes, runs=[run_id]))
