"""Agents: hello, orders, deliveries, files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from io import BytesIO

from fastapi import APIRouter, Request
from sqlalchemy import and_, select

from muster import errors
from muster.defaults import ORDERS_WAIT_MOST_S, ORDERS_WAIT_S, PROTOCOL_VERSION
from muster.host.files import safe_path
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_note, node_rank_of, record_file, upsert
from muster.server.http.dependencies import CallerOf, ContextOf, NodeOf, own
from muster.server.http.uploads import body_pieces
from muster.server.hub import NodeContact
from muster.server.nodes.orders import forgettable, orders_for
from muster.server.people.access import Caller
from muster.server.runs import attempts, ingest
from muster.server.runs.views import stored_name
from muster.wire import states
from muster.wire.node.agents import (
    AttemptKey,
    Chunk,
    Delivered,
    DeliveryAnswer,
    Event,
    Heartbeat,
    Hello,
    Leaving,
    Orders,
    UnreadableEvent,
    Welcome,
    decode,
)
from muster.wire.node.requests import FileReceived

log = logging.getLogger("muster.server")

router = APIRouter(prefix="/agents", tags=["agents"])


@router.post("/hello")
async def hello(body: Hello, context: ContextOf, caller: CallerOf) -> Welcome:
    """The first call of an agent, and after every loss of contact."""
    own(caller, body.node)
    if body.protocol != PROTOCOL_VERSION:
        raise errors.ProtocolMismatch(
            f"agent {body.node} speaks protocol {body.protocol}, the server {PROTOCOL_VERSION}",
            "Install the same version of Muster on the node and on the server.",
        )
    holding = set(body.holding)
    context.hub.contacts[body.node] = NodeContact(body.agent, time.monotonic(), holding, setup_error=body.setup_error)
    if body.setup_log is not None:
        location = f"clusters/{safe_path(body.cluster)}/{safe_path(body.node)}/setup.log"
        await asyncio.to_thread(context.files.store.put, location, [body.setup_log.encode()])
    await context.database.write(lambda transaction: _record_hello(context, transaction, body, holding))
    context.hub.clusters.set()
    return Welcome()


async def orders(node: str, request: Request, context: Context, caller: Caller) -> Orders:
    """What is wanted of the node; waits while nothing has changed since `seen`."""
    own(caller, node)
    asked = request.query_params
    try:
        agent, seen, wait_s = asked["agent"], int(asked.get("seen", -1)), float(asked.get("wait_s", ORDERS_WAIT_S))
    except (KeyError, ValueError) as error:
        raise errors.JobError(f"the call for orders is malformed: {error}", "Give agent, seen and wait_s.") from error
    contact = context.hub.contacts.get(node)
    if contact is None or contact.agent != agent:
        raise errors.Conflict(f"the server does not know the agent {agent} of {node}", "Say hello again.")
    context.hub.heard(node)
    await context.hub.wait_node(node, seen, min(max(wait_s, 0.0), ORDERS_WAIT_MOST_S))
    context.hub.heard(node)
    version = context.hub.node_version(node)
    # Also when nothing seems to have changed: orders are levels, and a lost wake-up must not cost a run.
    found = await context.database.read(lambda c: orders_for(context, c, node))
    leave = context.hub.leaving or node in context.hub.leaving_nodes
    return Orders(version, found, leave)


async def deliveries(node: str, request: Request, context: Context, caller: Caller) -> DeliveryAnswer:
    """Events and bytes of streams; what is acknowledged is on disk."""
    own(caller, node)
    try:
        frames = list(decode(BytesIO(await request.body())))
    except ValueError as error:
        raise errors.JobError(f"the delivery is malformed: {error}") from error
    chunks = [frame for frame in frames if isinstance(frame, Chunk)]
    events = [frame for frame in frames if isinstance(frame, Event)]
    unreadable = [frame for frame in frames if isinstance(frame, UnreadableEvent)]
    contact = context.hub.contacts.get(node)
    context.hub.heard(node)
    if any(isinstance(event.data, Leaving) for event in events):
        context.hub.taken_back.add(node)
    held = {event.key for event in events if isinstance(event.data, Delivered)}
    for frame in frames:
        if isinstance(frame, Heartbeat) and contact is not None:
            contact.holding = set(frame.holding)
            _hear_doing(context, contact, frame.doing)
            held |= contact.holding
    lengths = await asyncio.to_thread(_append, context, node, chunks) if chunks else {}
    parse = sorted({key for key in lengths if key[2].startswith("events/")})
    forget: tuple[AttemptKey, ...] = ()
    if events or parse or held:
        try:
            forget = await context.database.write(lambda t: _take(context, t, node, events, parse, held))
        except ingest.UNUSABLE as error:
            log.warning("a delivery of %s is taken in piece by piece: %s", node, error)
            forget = await context.database.write(lambda t: _take(context, t, node, events, parse, held, singly=True))
    if unreadable:
        await context.database.write(lambda t: _note_unreadable(t, node, unreadable))
    changed = {chunk.run for chunk in chunks} | {event.run for event in unreadable}
    if changed:
        context.hub.changed(runs=changed)
    return DeliveryAnswer(tuple((*key, length) for key, length in lengths.items()), forget, contact is None)


OFTEN = {("GET", "orders"): orders, ("POST", "deliveries"): deliveries}
"""The two calls that agents make all the time; they go past the framework, which costs more than they do."""


@router.put("/{node}/files", status_code=201)
async def put_file(
    node: NodeOf, request: Request, context: ContextOf, run: str, attempt: int, node_rank: int, path: str, size: int,
    sha256: str,
) -> FileReceived:  # fmt: skip
    """A file that an attempt left in `outputs`, `logs` or by upload."""
    if node_rank != await context.database.read(lambda c: node_rank_of(c, run, attempt, node)):
        raise errors.NotFound(f"attempt {attempt} of {run} is not on {node}")
    location = f"runs/{safe_path(run)}/attempts/{attempt}/{stored_name(node_rank, safe_path(path))}"
    await body_pieces(request, lambda pieces: context.files.store.put(location, pieces, sha256=sha256))
    await context.database.write(lambda t: record_file(t, run, attempt, node_rank, path, size, sha256))
    return FileReceived(path)


def _hear_doing(context: Context, contact: NodeContact, doing: Iterable[tuple[str, int, str, float]]) -> None:
    """What long preparations are at; whoever follows their runs hears of a change."""
    before = contact.doing
    contact.doing = {run: (text, since) for run, _, text, since in doing}
    if changed := {run for run in before.keys() | contact.doing.keys() if before.get(run) != contact.doing.get(run)}:
        context.hub.changed(runs=changed)


def _record_hello(context: Context, transaction: Transaction, body: Hello, holding: set[AttemptKey]) -> None:
    placements = tables.placements
    columns = ("cluster", "agent", "host", "address", "pid", "cpus", "memory_bytes", "version")
    row = {name: getattr(body, name) for name in columns}
    upsert(transaction, tables.nodes, {**row, "name": body.node, "gpus": list(body.gpus), "seen_at": time.time()})
    brought = _is_brought(context, transaction, body.cluster)
    if brought:
        attempts.identify_node(transaction, body)
    open_here = transaction.execute(
        select(placements).where(placements.c.node == body.node, placements.c.phase.in_(states.IS_OPEN))
    ).all()
    if brought and not open_here and not holding:
        # It came with an attempt that is over: it has no business here.
        context.hub.leaving_nodes.add(body.node)
        transaction.after_commit.append(lambda: context.hub.changed(nodes=[body.node]))
    begun = (states.PREPARED, states.STARTED, states.ENDED)
    if any(row.phase in begun and (row.run_id, row.number) not in holding for row in open_here):
        # The agent's folder has lost what the server waits for: nothing more will come of it.
        attempts.lose_node(context, transaction, body.node, give_up=True)
    for run_id in sorted({row.run_id for row in open_here}):
        attempts.advance(context, transaction, run_id)


def _is_brought(context: Context, transaction: Transaction, cluster: str) -> bool:
    """Whether the nodes of a cluster come with each attempt."""
    name = transaction.execute(select(tables.clusters.c.engine).where(tables.clusters.c.name == cluster)).scalar()
    return context.nodes.engines.queue(name) is not None


def _append(context: Context, node: str, chunks: list[Chunk]) -> dict[tuple[str, int, str], int]:
    """Append chunks of attempts that are this node's; others are refused whole."""
    placements = tables.placements
    wanted = {(chunk.run, chunk.attempt) for chunk in chunks}
    rows = context.database.read_now(
        lambda c: c.execute(
            select(placements.c.run_id, placements.c.number).where(
                placements.c.node == node, placements.c.run_id.in_({run for run, _ in wanted})
            )
        ).all()
    )
    mine = {(row.run_id, row.number) for row in rows}
    accepted = [chunk for chunk in chunks if (chunk.run, chunk.attempt) in mine]
    lengths = context.files.streams.append(accepted)
    for chunk in chunks:
        # A removed run has no place for its bytes: they count as delivered.
        if (chunk.run, chunk.attempt) not in mine:
            lengths[chunk.run, chunk.attempt, chunk.stream] = chunk.offset + len(chunk.data)
    return lengths


def _take(
    context: Context,
    transaction: Transaction,
    node: str,
    events: list[Event],
    parse: list[tuple[str, int, str]],
    held: set[AttemptKey],
    singly: bool = False,
) -> tuple[AttemptKey, ...]:
    """Record what was delivered; returns what the node may forget of what it holds.

    With `singly` what cannot be recorded is left out, and said.
    """
    for run, attempt, stream in parse:
        ingest.parse_events(context, transaction, run, attempt, stream, singly)
    if not singly:
        attempts.take_events(context, transaction, node, events)
    else:
        for event in events:
            _take_if_usable(context, transaction, node, event)
    return forgettable(transaction.connection, node, held)


def _take_if_usable(context: Context, transaction: Transaction, node: str, event: Event) -> None:
    try:
        with transaction.connection.begin_nested():
            attempts.take_events(context, transaction, node, [event])
    except ingest.UNUSABLE as error:
        _note_left_out(transaction, node, event, f"{type(error).__name__}: {error}")


def _note_unreadable(transaction: Transaction, node: str, events: Iterable[UnreadableEvent]) -> None:
    for event in events:
        mine = and_(tables.placements.c.run_id == event.run, tables.placements.c.node == node)
        if transaction.execute(select(tables.placements.c.node).where(mine)).first() is not None:
            _note_left_out(transaction, node, event, event.problem)


def _note_left_out(transaction: Transaction, node: str, event: Event | UnreadableEvent, why: str) -> None:
    log.error("an event of %s is left out: %s: %s", node, event.kind, why)
    text = f"node {node} sent an event ({event.kind}) that cannot be recorded: {why[:200]}"
    add_note(transaction, event.run, "error", text)
