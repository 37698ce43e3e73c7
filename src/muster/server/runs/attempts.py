"""Attempts: load the records, decide, apply. Everything here runs inside one write transaction."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select, update

from muster.control.lifecycle import Finish, Go, Move, Stop, decide
from muster.control.retry import Retry
from muster.control.scheduling.model import Node, Place, Start
from muster.defaults import GRACE_CANCEL_S
from muster.diagnosis.verdict import judge
from muster.engines import base
from muster.host import clock
from muster.job.spec import JobSpec
from muster.launch.conventions import ports_wanted
from muster.launch.plan import plan as make_plan
from muster.server.context import Context
from muster.server.data import output_assets
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_note
from muster.server.environments import records
from muster.server.models import outputs as model_outputs
from muster.server.nodes import allocations
from muster.server.nodes.allocations import named, shown_name
from muster.server.runs import facts, ingest, readiness, retries
from muster.server.runs.attempt_record import AttemptRecord, Record
from muster.server.runs.evidence import gather
from muster.wire import states
from muster.wire.codec import from_json, to_json
from muster.wire.environments import BuiltEnvironment
from muster.wire.node.agents import (
    AttemptKey,
    Delivered,
    Ended,
    Event,
    Exited,
    Hello,
    Leaving,
    Noted,
    Prepared,
    Refused,
    ServerContact,
    Started,
    StartedRank,
    TimedOut,
)
from muster.wire.node.plan import Slot
from muster.wire.states import RunStatus
from muster.wire.stream import RankEnded, RankStarted
from muster.wire.text import own_paths
from muster.wire.verdicts import CANCELLED, COMPLETED, Ending, Refusal, Verdict

_STATUS: dict[str, RunStatus] = {COMPLETED: states.COMPLETED, CANCELLED: states.CANCELED}


def begin(context: Context, transaction: Transaction, start: Start, to_come: bool = False) -> list[tuple[str, str]]:
    """Give a queued run its nodes (with `to_come` an engine still has to start them); returns them, with their cluster.

    It is a new attempt, ordered on each of them.
    """
    record = AttemptRecord.create(transaction, start.run_id, start.places, allocations.node_name if to_come else None)
    spec = JobSpec.model_validate(record.run.spec, strict=False)
    if not to_come and not any(ports_wanted(spec, rank).count for rank in range(len(start.places))):
        # The nodes need not agree on anything first: the order to prepare carries the plan.
        _plan(transaction, record, spec)
    _advance_current(context, transaction, record)
    return [(node.cluster, node.node) for node in record.nodes]


def refuse(context: Context, transaction: Transaction, run_id: str, node: Node, refusal: Refusal) -> None:
    """Record an attempt that ended before it began: the environment of a queued run could not be built on a node."""
    record = AttemptRecord.create(transaction, run_id, [Place(node, 0, ())])
    now = clock.now()
    refused = Refused(refusal.code, refusal.message, refusal.next, refusal.lines)
    for data in (refused, Ended(now, "refused"), Delivered()):
        _apply_event(record, record.nodes[0], Event(run_id, record.attempt.number, now, data))
    _advance_current(context, transaction, record)


def take_events(context: Context, transaction: Transaction, node: str, events: Sequence[Event]) -> None:
    """Record an agent's events of its attempts, and advance those."""
    by_attempt: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        by_attempt.setdefault(event.key, []).append(event)
    for (run_id, number), received in by_attempt.items():
        record = AttemptRecord.load(transaction, run_id, number)
        placement = record.node(node) if record else None
        if record is None or placement is None or placement.phase == states.CLOSED:
            continue
        for event in received:
            _apply_event(record, placement, event)
        _advance_current(context, transaction, record)


def advance(context: Context, transaction: Transaction, run_id: str) -> None:
    """Decide and apply after something about the run has changed."""
    record = AttemptRecord.load(transaction, run_id)
    if record is not None:
        _advance_current(context, transaction, record)


def preempt(context: Context, transaction: Transaction, run_id: str, why: str) -> None:
    """End the current attempt of a run with grace, because its nodes are needed elsewhere; it is queued again."""
    record = AttemptRecord.load(transaction, run_id)
    if record is None or record.attempt.ended_at is not None or record.attempt.stop_reason:
        return
    record.note("warning", f"preempted: {why}")
    _stop(context, record, Stop("preempted", GRACE_CANCEL_S))
    _advance_current(context, transaction, record)


def lose_node(
    context: Context,
    transaction: Transaction,
    node: str,
    give_up: bool,
    why: str = "",
    unreached: ServerContact | None = None,
    only: AttemptKey | None = None,
) -> None:
    """A node's agent is gone or cannot reach this server: its attempts end; with `give_up` nothing more comes.

    `only`: the one attempt that is lost there, where the others are well.
    """
    placements = tables.placements
    rows = transaction.execute(
        select(placements.c.run_id, placements.c.number).where(
            placements.c.node == node, placements.c.phase.in_(states.IS_OPEN)
        )
    ).all()
    for run_id, number in rows:
        if only not in (None, (run_id, number)):
            continue
        record = AttemptRecord.load(transaction, run_id, number)
        placement = record.node(node) if record else None
        if record is None or placement is None:
            continue
        _lose(record, placement, give_up, why, unreached)
        _advance_current(context, transaction, record)


def note_ending(context: Context, transaction: Transaction, run_id: str, number: int, ending: base.Ending) -> None:
    """Record why an engine took an attempt's nodes back; the first reason counts."""
    record = AttemptRecord.load(transaction, run_id, number)
    if record is None or record.attempt.ending is not None or record.attempt.ended_at is not None:
        return
    record.attempt.set(ending=to_json(ending))
    if ending.message:
        record.note("warning" if ending.code else "info", ending.message)
    _advance_current(context, transaction, record)


def announce(context: Context, transaction: Transaction, run_id: str, text: str) -> None:
    """Send a note to the followers of a run."""
    add_note(transaction, run_id, "info", text)
    transaction.after_commit.append(lambda: context.hub.changed(runs=[run_id]))


def identify_node(transaction: Transaction, hello: Hello) -> None:
    """Record which machine a node is, now that its agent has said hello."""
    run_id, number = allocations.attempt_of(hello.node)
    placements, attempts = tables.placements, tables.attempts
    mine = (placements.c.run_id == run_id, placements.c.number == number, placements.c.node == hello.node)
    values = {"host": hello.host, "address": hello.address, "cpus": hello.cpus, "gpus": list(hello.gpus)}
    transaction.execute(update(placements).where(*mine, placements.c.phase == states.ORDERED).values(**values))
    transaction.execute(
        update(attempts)
        .where(attempts.c.run_id == run_id, attempts.c.number == number, attempts.c.started_at.is_(None))
        .values(granted_at=clock.now())
    )


def _apply_event(record: AttemptRecord, placement: Record, event: Event) -> None:
    """Apply one event to the record."""
    data = event.data
    if isinstance(data, Prepared):
        placement.set(ports=list(data.ports), address=data.address or placement.address, resumed=data.resumed)
        placement.set(facts=to_json(data.facts))
        if data.environment is not None:
            _record_environment(record, shown_name(placement), data.environment)
        if placement.phase == states.ORDERED:
            placement.set(phase=states.PREPARED)
            _note_all(record, readiness.notices([placement]) if record.attempt.plan is not None else ())
    elif isinstance(data, Refused):
        placement.set(refusal=to_json(data))
        record.note("error", f"{shown_name(placement)}: {data.message}")
    elif isinstance(data, Started):
        if placement.phase in (states.ORDERED, states.PREPARED):
            placement.set(phase=states.STARTED)
        for started in data.ranks:
            _record_start(record, event, started)
    elif isinstance(data, Exited):
        _record_exit(record, event, data, shown_name(placement))
    elif isinstance(data, Noted):
        record.note(data.level, f"{shown_name(placement)}: {data.text}")
    elif isinstance(data, TimedOut):
        record.attempt.set(timed_out=True)
    elif isinstance(data, Leaving):
        placement.set(leaving=True)
        record.note("warning", f"{named(placement)} was told to go")
    elif isinstance(data, Ended):
        if placement.phase in states.HOLDS_RESOURCES:
            placement.set(phase=states.ENDED)
        if data.reason == "agent_lost":
            placement.set(lost=True)
    elif placement.phase == states.GIVEN_UP:
        placement.set(phase=states.CLOSED)
    elif placement.phase in (*states.HOLDS_RESOURCES, states.ENDED):
        placement.set(phase=states.DELIVERED)
        if data.undelivered is not None:
            placement.set(refusal=placement.refusal or to_json(replace(data.undelivered, late=True)))
        for note in data.notes:
            record.note("warning", note)


def _record_environment(record: AttemptRecord, node: str, built: BuiltEnvironment) -> None:
    record.run.set(environment=records.with_versions(record.run.environment, built))
    if built.built_s is not None:
        name = (record.run.environment or {}).get("name")
        record.note("info", f"{node}: the environment {name} ({built.key}) is ready after {built.built_s:.1f} s")


def _record_start(record: AttemptRecord, event: Event, started: StartedRank) -> None:
    rank = record.rank(started.rank)
    if rank is not None and rank.state == "waiting":
        rank.set(state="running", pid=started.pid, started_at=started.at)
        record.announce(RankStarted(rank.rank, "running", event.at))


def _record_exit(record: AttemptRecord, event: Event, exited: Exited, node: str) -> None:
    rank = record.rank(exited.rank)
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
    record.announce(RankEnded(rank.rank, node, "ended", exited.exit_code, exited.signal, event.at))


def _lose(record: AttemptRecord, placement: Record, give_up: bool, why: str, unreached: ServerContact | None) -> None:
    if placement.phase == states.ORDERED:
        # Nothing has begun there: the node's next agent picks up the order.
        if not give_up:
            return
        ending = from_json(Ending, record.attempt.ending) if record.attempt.ending else Ending("", "")
        text = ending.message or f"the agent of {shown_name(placement)} did not come" + (f": {why}" if why else "")
        refusal = Refusal(ending.code or "platform", text)
        if unreached is not None and not ending.code:
            placement.set(host=unreached.host)
            refusal = allocations.cannot_reach(placement.cluster, unreached)
        placement.set(lost=True, refusal=to_json(refusal))
        record.note("error", f"{shown_name(placement)}: {refusal.message}" if unreached else refusal.message)
    elif placement.phase in states.HOLDS_RESOURCES and not placement.lost:
        placement.set(lost=True)
        record.note("error", f"{named(placement)} or its agent went away")
    elif placement.phase == states.ENDED and give_up:
        text = f"{named(placement)} went away before everything that its ranks left was delivered"
        placement.set(refusal=placement.refusal or to_json(Refusal("node_lost", text, late=True)))
        record.note("error", text)
    if give_up:
        placement.set(phase=states.GIVEN_UP)


def _advance_current(context: Context, transaction: Transaction, record: AttemptRecord) -> None:
    """Decide what follows if the attempt is the current one, and write what has changed."""
    if record.is_current:
        _advance(context, transaction, record)
    record.save(context, transaction)


def _advance(context: Context, transaction: Transaction, record: AttemptRecord) -> None:
    """Decide and apply until there is nothing to do."""
    while record.attempt.ended_at is None and record.run.status not in states.TERMINAL:
        actions = decide(record.view(context))
        if not actions:
            return
        for action in actions:
            if isinstance(action, Go):
                _start_gang(transaction, record)
            elif isinstance(action, Stop):
                _stop(context, record, action)
            elif isinstance(action, Move):
                _move(context, transaction, record, action.status)
            elif isinstance(action, Finish):
                _finish(context, transaction, record)


def _start_gang(transaction: Transaction, record: AttemptRecord) -> None:
    """Make the plan that starts the gang; where the nodes do not agree, none starts."""
    try:
        readiness.check_agreement(record.nodes)
        _plan(transaction, record, JobSpec.model_validate(record.run.spec, strict=False))
    except readiness.NotReady as trouble:
        record.nodes[0].set(refusal=to_json(Refusal(trouble.code, str(trouble))))
        return
    _note_all(record, readiness.notices(record.nodes))


def _note_all(record: AttemptRecord, texts: Sequence[str]) -> None:
    for text in texts:
        record.note("info", text)


def _plan(transaction: Transaction, record: AttemptRecord, spec: JobSpec) -> None:
    machines = readiness.machines(record.nodes)
    slots: Sequence[Slot] = [
        Slot(shown_name(row), row.address, row.cpus, tuple(row.gpus), tuple(row.ports), machines.count(machine) > 1)
        for row, machine in zip(record.nodes, machines, strict=True)
    ]
    slots, about_network = readiness.networked(transaction, record.nodes, spec, slots)
    number = record.attempt.number
    plan = make_plan(spec, slots, run_id=record.run.id, attempt=number, python=_python(record.run))
    record.attempt.set(plan={**to_json(plan), "secret": secrets.token_hex(32)})
    columns = ("rank", "node_rank", "role", "essential", "log")
    record.add_ranks([{name: getattr(rank, name) for name in columns} for rank in plan.ranks])
    _note_all(record, [*plan.notices, *about_network])


def _python(run: Record) -> str:
    """The interpreter in a rank's command; one that a node builds is found on its PATH."""
    return "python" if run.environment is not None else run.python or "python"


def _stop(context: Context, record: AttemptRecord, action: Stop) -> None:
    record.attempt.set(stop_reason=action.reason, stop_grace_s=action.grace_s)
    for node in record.nodes:
        # An agent that never came has nothing to stop; if it comes later, it finds no order.
        if node.phase == states.ORDERED and node.node not in context.hub.contacts:
            node.set(phase=states.GIVEN_UP)


def _move(context: Context, transaction: Transaction, record: AttemptRecord, status: RunStatus) -> None:
    if status == states.FINALIZING:
        _note_beginning(record, clock.now())
    if status == states.FINALIZING and record.attempt.stop_reason not in (None, "done"):
        # A first verdict at once, since large files may take long; it is judged again when everything is here.
        verdict = to_json(_judge(context, transaction, record))
        record.attempt.set(verdict=verdict)
        record.move(status, verdict=verdict)
    elif status == states.RUNNING:
        now = clock.now()
        record.attempt.set(started_at=now, status=status)
        record.move(status, started_at=record.run.started_at or now)
    else:
        record.move(status)
    if context.runs.queue.dependencies.are_on(record.run.id):
        # The reason of each run that waits for it names its status.
        transaction.after_commit.append(lambda: context.hub.changed(queue=True))


def _finish(context: Context, transaction: Transaction, record: AttemptRecord) -> None:
    run, number = record.run, record.attempt.number
    for stream, _size in context.files.streams.names(run.id, number):
        if stream.startswith("events/"):
            ingest.parse_events(context, transaction, run.id, number, stream)
    verdict = _judge(context, transaction, record)
    following = retries.follow(context, transaction, record, verdict)
    action = retries.next_step(following) if isinstance(following, Retry) else following.why
    now = clock.now()
    _note_beginning(record, now)
    status = _STATUS.get(verdict.code, states.FAILED)
    similar = facts.similar_runs(context, transaction, record, verdict, now) if status == states.FAILED else None
    verdict = replace(verdict, action=action, similar=similar)
    record.attempt.set(status=status, ended_at=now, verdict=to_json(verdict))
    transaction.after_commit.append(lambda: context.publish(run.id, number))
    for node in record.nodes:
        if node.phase == states.DELIVERED:
            node.set(phase=states.CLOSED)
    allocations.release_after(context, transaction, run, number, followed=isinstance(following, Retry))
    if isinstance(following, Retry):
        retries.enqueue(context, transaction, record, following, now)
    else:
        record.move(status, ended_at=now, verdict=to_json(verdict))
    if status == states.COMPLETED:
        output_assets.register(context, transaction, run.id, run.spec, run.submitted_by)
        model_outputs.register(context, transaction, run.id, run.spec, run.submitted_by)


def _note_beginning(record: AttemptRecord, now: float) -> None:
    """Take the start of an attempt that was over before its first event came from its ranks, by their node's clock."""
    began = [rank.started_at for rank in record.ranks if rank.started_at is not None]
    if record.attempt.started_at is None and began:
        at = min(now, max(record.attempt.created_at, *began))
        record.attempt.set(started_at=at)
        record.run.set(started_at=record.run.started_at or at)


def _judge(context: Context, transaction: Transaction, record: AttemptRecord) -> Verdict:
    evidence = gather(context.files.streams, record.run, record.attempt, record.nodes, record.ranks)
    if evidence.stop_reason not in (None, "done"):
        evidence = replace(evidence, facts=facts.facts_of(context, transaction, record))
    verdict = judge(evidence)
    return replace(verdict, message=own_paths(verdict.message), lines=tuple(map(own_paths, verdict.lines)))
