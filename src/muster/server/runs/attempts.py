"""Attempts: load what is recorded, decide, apply. Everything here runs inside one write."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select, update

from muster.control.lifecycle import Finish, Go, Move, Stop, decide
from muster.control.retry import Retry
from muster.control.scheduling.model import Start
from muster.control.verdict import judge
from muster.defaults import GRACE_CANCEL_S
from muster.engines.base import Ending
from muster.job.spec import JobSpec
from muster.launch.plan import plan as make_plan
from muster.launch.plan import ports_wanted
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_note
from muster.server.environments import records
from muster.server.nodes import allocations
from muster.server.runs import ingest, readiness, retries
from muster.server.runs.attempt_record import Picture, Record
from muster.server.runs.evidence import gather
from muster.wire import states
from muster.wire.codec import to_json
from muster.wire.environments import BuiltEnvironment
from muster.wire.node.agents import (
    Ended,
    Event,
    Exited,
    Hello,
    Leaving,
    Noted,
    Prepared,
    Refused,
    Started,
    StartedRank,
    TimedOut,
)
from muster.wire.node.plan import Slot
from muster.wire.verdicts import CANCELLED, COMPLETED, Verdict

_STATUS = {COMPLETED: states.COMPLETED, CANCELLED: states.CANCELED}


def begin(context: Context, transaction: Transaction, start: Start, to_come: bool = False) -> list[tuple[str, str]]:
    """Give a queued run its nodes (with `to_come` an engine still has to bring them): returns them, with their cluster.

    It is a new attempt, ordered on each of them.
    """
    picture = Picture.create(transaction, start.run_id, start.places, allocations.node_name if to_come else None)
    spec = JobSpec.model_validate(picture.run.spec, strict=False)
    if not to_come and not any(ports_wanted(spec, rank).count for rank in range(len(start.places))):
        # Nothing has to be agreed between the nodes first: the order to prepare carries the plan.
        _plan(transaction, picture, spec)
    _advance(context, transaction, picture)
    picture.save(context, transaction)
    return [(node.cluster, node.node) for node in picture.nodes]


def take_events(context: Context, transaction: Transaction, node: str, events: Sequence[Event]) -> None:
    """Record what an agent says of its attempts, and go on from there."""
    by_attempt: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        by_attempt.setdefault(event.key, []).append(event)
    for (run_id, number), received in by_attempt.items():
        picture = Picture.load(transaction, run_id, number)
        placement = picture.node(node) if picture else None
        if picture is None or placement is None or placement.phase == states.CLOSED:
            continue
        for event in received:
            _record(picture, placement, event)
        if picture.is_current:
            _advance(context, transaction, picture)
        picture.save(context, transaction)


def advance(context: Context, transaction: Transaction, run_id: str) -> None:
    """Decide and apply, after something about the run has changed."""
    picture = Picture.load(transaction, run_id)
    if picture is not None:
        _advance(context, transaction, picture)
        picture.save(context, transaction)


def preempt(context: Context, transaction: Transaction, run_id: str, why: str) -> None:
    """End the current attempt of a run with grace, because its nodes are wanted elsewhere; it is queued again."""
    picture = Picture.load(transaction, run_id)
    if picture is None or picture.attempt.ended_at is not None or picture.attempt.stop_reason:
        return
    picture.note("warning", f"preempted: {why}")
    _stop(context, picture, Stop("preempted", GRACE_CANCEL_S))
    _advance(context, transaction, picture)
    picture.save(context, transaction)


def lose_node(context: Context, transaction: Transaction, node: str, give_up: bool, why: str = "") -> None:
    """A node's agent is gone: its attempts end; with `give_up` nothing more is expected of it."""
    placements = tables.placements
    rows = transaction.execute(
        select(placements.c.run_id, placements.c.number).where(
            placements.c.node == node, placements.c.phase.in_(states.IS_OPEN)
        )
    ).all()
    for run_id, number in rows:
        picture = Picture.load(transaction, run_id, number)
        placement = picture.node(node) if picture else None
        if picture is None or placement is None:
            continue
        _lose(picture, placement, give_up, why)
        if picture.is_current:
            _advance(context, transaction, picture)
        picture.save(context, transaction)


def note_ending(context: Context, transaction: Transaction, run_id: str, number: int, ending: Ending) -> None:
    """Keep how an engine says that an attempt's nodes were taken back; the first word counts."""
    picture = Picture.load(transaction, run_id, number)
    if picture is None or picture.attempt.ending is not None or picture.attempt.ended_at is not None:
        return
    picture.attempt.set(ending={"code": ending.code, "message": ending.message})
    if ending.message:
        picture.note("warning" if ending.code else "info", ending.message)
    if picture.is_current:
        _advance(context, transaction, picture)
    picture.save(context, transaction)


def tell(context: Context, transaction: Transaction, run_id: str, text: str) -> None:
    """Say something to those who follow a run."""
    add_note(transaction, run_id, "info", text)
    transaction.after_commit.append(lambda: context.hub.changed(runs=[run_id]))


def meet_node(transaction: Transaction, hello: Hello) -> None:
    """The agent of a node that was to come is here: now it is known which machine that is."""
    run_id, number = allocations.attempt_of(hello.node)
    placements, attempts = tables.placements, tables.attempts
    mine = (placements.c.run_id == run_id, placements.c.number == number, placements.c.node == hello.node)
    values = {"host": hello.host, "address": hello.address, "cpus": hello.cpus, "gpus": list(hello.gpus)}
    transaction.execute(update(placements).where(*mine, placements.c.phase == states.ORDERED).values(**values))
    transaction.execute(
        update(attempts)
        .where(attempts.c.run_id == run_id, attempts.c.number == number, attempts.c.started_at.is_(None))
        .values(granted_at=time.time())
    )


def _record(picture: Picture, placement: Record, event: Event) -> None:
    """Take one event in."""
    data = event.data
    if isinstance(data, Prepared):
        placement.set(ports=list(data.ports), address=data.address or placement.address, resumed=data.resumed)
        placement.set(facts=to_json(data.facts))
        if data.environment is not None:
            _record_environment(picture, placement.node, data.environment)
        if placement.phase == states.ORDERED:
            placement.set(phase=states.PREPARED)
            _tell_notices(picture, readiness.notices([placement]) if picture.attempt.plan is not None else ())
    elif isinstance(data, Refused):
        placement.set(refusal=to_json(data))
        picture.note("error", f"{placement.node}: {data.message}")
    elif isinstance(data, Started):
        if placement.phase in (states.ORDERED, states.PREPARED):
            placement.set(phase=states.STARTED)
        for started in data.ranks:
            _record_start(picture, event, started)
    elif isinstance(data, Exited):
        _record_exit(picture, event, data, placement.node)
    elif isinstance(data, Noted):
        picture.note(data.level, f"{placement.node}: {data.text}")
    elif isinstance(data, TimedOut):
        picture.attempt.set(timed_out=True)
    elif isinstance(data, Leaving):
        placement.set(leaving=True)
        picture.note("warning", f"node {placement.node} was told to go")
    elif isinstance(data, Ended):
        if placement.phase in states.HOLDS_RESOURCES:
            placement.set(phase=states.ENDED)
        if data.reason == "agent_lost":
            placement.set(lost=True)
    elif placement.phase == states.GIVEN_UP:
        placement.set(phase=states.CLOSED)
    elif placement.phase in (*states.HOLDS_RESOURCES, states.ENDED):
        placement.set(phase=states.DELIVERED)
        for note in data.notes:
            picture.note("warning", note)


def _record_environment(picture: Picture, node: str, built: BuiltEnvironment) -> None:
    picture.run.set(environment=records.with_versions(picture.run.environment, built))
    if built.built_s is not None:
        name = (picture.run.environment or {}).get("name")
        picture.note("info", f"{node}: the environment {name} ({built.key}) is ready after {built.built_s:.1f} s")


def _record_start(picture: Picture, event: Event, started: StartedRank) -> None:
    rank = picture.rank(started.rank)
    if rank is not None and rank.state == "waiting":
        rank.set(state="running", pid=started.pid, started_at=started.at)
        picture.tell("rank", {"rank": rank.rank, "state": "running"}, event.at)


def _record_exit(picture: Picture, event: Event, exited: Exited, node: str) -> None:
    rank = picture.rank(exited.rank)
    if rank is None or rank.state == "ended":
        return
    known = ("rank", "at", "exit_code", "signal")
    rank.set(
        state="ended",
        ended_at=exited.at,
        exit_code=exited.exit_code,
        signal=exited.signal,
        expected=exited.expected,
        evidence={key: value for key, value in to_json(exited).items() if key not in known},
    )
    end = {"rank": rank.rank, "node": node, "state": "ended", "exit_code": rank.exit_code, "signal": rank.signal}
    picture.tell("rank", end, event.at)


def _lose(picture: Picture, placement: Record, give_up: bool, why: str) -> None:
    if placement.phase == states.ORDERED:
        # Nothing has begun there: the next agent of the node takes the order up.
        if not give_up:
            return
        text = f"the agent of {placement.node} did not come" + (f": {why}" if why else "")
        told = picture.attempt.ending or {}
        text = told.get("message") or text
        placement.set(lost=True, refusal={"code": told.get("code") or "platform", "message": text})
        picture.note("error", text)
    elif placement.phase in states.HOLDS_RESOURCES and not placement.lost:
        placement.set(lost=True)
        picture.note("error", f"node {placement.node} or its agent went away")
    if give_up:
        placement.set(phase=states.GIVEN_UP)


def _advance(context: Context, transaction: Transaction, picture: Picture) -> None:
    """Decide and apply until the attempt rests."""
    while picture.attempt.ended_at is None and picture.run.status not in states.TERMINAL:
        actions = decide(picture.view(context))
        if not actions:
            return
        for action in actions:
            if isinstance(action, Go):
                _go(transaction, picture)
            elif isinstance(action, Stop):
                _stop(context, picture, action)
            elif isinstance(action, Move):
                _move(context, picture, action.status)
            elif isinstance(action, Finish):
                _finish(context, transaction, picture)


def _go(transaction: Transaction, picture: Picture) -> None:
    """Make the plan that starts the gang; where the nodes do not agree, none starts."""
    try:
        readiness.check_agreement(picture.nodes)
        _plan(transaction, picture, JobSpec.model_validate(picture.run.spec, strict=False))
    except readiness.NotReady as trouble:
        picture.nodes[0].set(refusal={"code": trouble.code, "message": str(trouble)})
        return
    _tell_notices(picture, readiness.notices(picture.nodes))


def _tell_notices(picture: Picture, texts: Sequence[str]) -> None:
    for text in texts:
        picture.note("info", text)


def _plan(transaction: Transaction, picture: Picture, spec: JobSpec) -> None:
    machines = readiness.machines(picture.nodes)
    slots: Sequence[Slot] = [
        Slot(row.node, row.address, row.cpus, tuple(row.gpus), tuple(row.ports), machines.count(machine) > 1)
        for row, machine in zip(picture.nodes, machines, strict=True)
    ]
    slots, about_network = readiness.networked(transaction, picture.nodes, spec, slots)
    number = picture.attempt.number
    made = make_plan(spec, slots, run_id=picture.run.id, attempt=number, python=_python(picture.run))
    picture.attempt.set(plan={**to_json(made), "secret": secrets.token_hex(32)})
    picture.add_ranks(
        [
            {
                "rank": rank.rank,
                "node_rank": rank.node_rank,
                "role": rank.role,
                "essential": rank.essential,
                "log": rank.log,
            }
            for rank in made.ranks
        ]
    )
    _tell_notices(picture, [*made.notices, *about_network])


def _python(run: Record) -> str:
    """The interpreter in a rank's command; one that a node builds is found on its PATH."""
    return "python" if run.environment is not None else run.python or "python"


def _stop(context: Context, picture: Picture, action: Stop) -> None:
    picture.attempt.set(stop_reason=action.reason, stop_grace_s=action.grace_s)
    for node in picture.nodes:
        # An agent that never came has nothing to stop; should it come later, it finds no order.
        if node.phase == states.ORDERED and node.node not in context.hub.contacts:
            node.set(phase=states.GIVEN_UP)


def _move(context: Context, picture: Picture, status: str) -> None:
    if status == states.FINALIZING and picture.attempt.stop_reason not in (None, "done"):
        # Said at once; large files may take long to arrive. It is judged again when everything is here.
        verdict = to_json(_judge(context, picture))
        picture.attempt.set(verdict=verdict)
        picture.move(status, verdict=verdict)
    elif status == states.RUNNING:
        now = time.time()
        picture.attempt.set(started_at=now, status=status)
        picture.move(status, started_at=picture.run.started_at or now)
    else:
        picture.move(status)


def _finish(context: Context, transaction: Transaction, picture: Picture) -> None:
    run, number = picture.run, picture.attempt.number
    for stream, _size in context.streams.names(run.id, number):
        if stream.startswith("events/"):
            ingest.parse_events(context, transaction, run.id, number, stream)
    verdict = _judge(context, picture)
    following = retries.follow(context, transaction, picture, verdict)
    action = retries.told(following) if isinstance(following, Retry) else following.why
    verdict = replace(verdict, action=action)
    now = time.time()
    status = _STATUS.get(verdict.code, states.FAILED)
    picture.attempt.set(status=status, ended_at=now, verdict=to_json(verdict))
    transaction.after_commit.append(lambda: context.publish(run.id, number))
    for node in picture.nodes:
        if node.phase == states.DELIVERED:
            node.set(phase=states.CLOSED)
    allocations.release_after(context, transaction, run, number, followed=isinstance(following, Retry))
    if isinstance(following, Retry):
        retries.enqueue(context, transaction, picture, following, now)
    else:
        picture.move(status, ended_at=now, verdict=to_json(verdict))


def _judge(context: Context, picture: Picture) -> Verdict:
    return judge(gather(context.streams, picture.run, picture.attempt, picture.nodes, picture.ranks))
