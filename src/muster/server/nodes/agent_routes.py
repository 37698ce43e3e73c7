"""Agents: hello, orders, deliveries, files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial
from io import BytesIO

from fastapi import APIRouter, Request
from sqlalchemy import and_, select

from muster import errors
from muster.control.access import Action, Caller
from muster.defaults import FILES_BODY_BYTES, NEWEST_PROTOCOL, OLDEST_PROTOCOL, ORDERS_WAIT_MOST_S, ORDERS_WAIT_S
from muster.host.files import is_safe_path, safe_path
from muster.server import disk
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.faults import disk_full
from muster.server.database.records import add_note_once, node_rank_of, record_file, record_files, upsert
from muster.server.http.dependencies import CallerOf, ContextOf, NodeOf, own
from muster.server.http.needs import needs
from muster.server.http.uploads import body_pieces
from muster.server.hub import NodeContact
from muster.server.logs import steps
from muster.server.nodes import allocations
from muster.server.nodes.orders import forgettable, orders_for
from muster.server.runs import attempts, ingest
from muster.server.runs.views import stored_name
from muster.store.arrivals import PRINTED, Log
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
from muster.wire.node.requests import FileReceived, FilesReceived, decode_files
from muster.wire.text import is_encodable, storable

log = logging.getLogger("muster.server")

_NAME_LENGTH = 255
_PATH_LENGTH = 3500

router = APIRouter(prefix="/agents", tags=["agents"])


@router.post("/hello", dependencies=[needs(Action.SERVE_NODE)])
async def hello(body: Hello, context: ContextOf, caller: CallerOf) -> Welcome:
    """The first call of an agent, and after every loss of contact."""
    own(caller, body.node)
    if not OLDEST_PROTOCOL <= body.protocol <= NEWEST_PROTOCOL:
        raise errors.ProtocolMismatch(
            f"agent {body.node} speaks protocol {body.protocol}, the server {OLDEST_PROTOCOL} to {NEWEST_PROTOCOL}",
            "Install the same version of Muster on the node and on the server, or a neighbouring one.",
        )
    holding = set(body.holding)
    contact = NodeContact(body.agent, time.monotonic(), holding, host=body.host, builds=body.builds)
    contact.setup_error = body.setup_error
    context.hub.contacts[body.node] = contact
    if body.setup_log is not None:
        location = f"clusters/{safe_path(body.cluster)}/{safe_path(body.node)}/setup.log"
        await asyncio.to_thread(context.files.store.put, location, [body.setup_log.encode()])
    await context.database.write(lambda transaction: _record_hello(context, transaction, body, holding))
    context.hub.clusters.set()
    return Welcome()


async def orders(node: str, request: Request, context: Context, caller: Caller) -> Orders:
    """The orders of the node; waits while nothing has changed since `seen`."""
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
    # Answered even if nothing seems to have changed: orders are levels, and a lost wake-up must not cost a run.
    found = await context.database.read(lambda c: orders_for(context, c, node))
    leave = context.hub.leaving or node in context.hub.leaving_nodes
    return Orders(version, found, leave, context.tunnels.waiting_for(node), context.runs.builds.orders(node))


async def deliveries(node: str, request: Request, context: Context, caller: Caller) -> DeliveryAnswer:
    """Take events and bytes of streams; what is acknowledged is on disk."""
    own(caller, node)
    try:
        frames = list(decode(BytesIO(await request.body())))
    except (ValueError, RecursionError) as error:
        raise errors.JobError(f"the delivery is malformed: {error}") from error
    chunks = [frame for frame in frames if isinstance(frame, Chunk)]
    refused = {(chunk.run, chunk.attempt, chunk.stream) for chunk in chunks if not _is_stream(chunk.stream)}
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
            _note_preparations(context, contact, frame.doing)
            held |= contact.holding
    lengths = await asyncio.to_thread(_append, context, node, chunks) if chunks else {}
    parse = sorted({key for key in lengths if key[2].startswith("events/")} - refused)
    forget: tuple[AttemptKey, ...] = ()
    printed = context.printed.due(event.run for event in events)
    if printed:
        await context.database.write(lambda t: steps.keep(t, printed))
    if events or parse or held:
        try:
            forget = await context.database.write(lambda t: _record_delivery(context, t, node, events, parse, held))
        except ingest.UNUSABLE as error:
            log.warning("a delivery of %s is recorded event by event: %s", node, error)
            forget = await context.database.write(
                lambda t: _record_delivery(context, t, node, events, parse, held, singly=True)
            )
    if unreadable or refused:
        unreadable += [
            UnreadableEvent(run, number, "stream", f"{name!r} is not a valid name") for run, number, name in refused
        ]
        await context.database.write(lambda t: _note_unreadable(t, node, unreadable))
    changed = {chunk.run for chunk in chunks} | {event.run for event in unreadable}
    if changed:
        context.hub.changed(runs=changed)
    return DeliveryAnswer(tuple((*key, length) for key, length in lengths.items()), forget, contact is None)


OFTEN = {("GET", "orders"): orders, ("POST", "deliveries"): deliveries}
"""The two calls that agents make all the time; they bypass the framework, which costs more than they do."""


@router.put("/{node}/files", status_code=201)
async def put_file(
    node: NodeOf, request: Request, context: ContextOf, run: str, attempt: int, node_rank: int, path: str, size: int,
    sha256: str,
) -> FileReceived:  # fmt: skip
    """A file that an attempt left in `outputs`, `logs` or by upload."""
    if node_rank != await context.database.read(lambda c: node_rank_of(c, run, attempt, node)):
        raise errors.NotFound(f"attempt {attempt} of {run} is not on {node}")
    if await asyncio.to_thread(_is_given_up, context, run):
        async for _piece in request.stream():
            pass
        return FileReceived(path)
    if why := _unfit(context, run, attempt, path):
        # A rank chose the name: if it were refused, the agent would send it again and again.
        async for _ in request.stream():
            pass
        await _note_unfit(context, run, {path: why})
        return FileReceived(path)
    location = f"runs/{safe_path(run)}/attempts/{attempt}/{stored_name(node_rank, safe_path(path))}"
    await body_pieces(request, lambda pieces: context.files.store.put(location, pieces, sha256=sha256))
    await context.database.write(lambda t: record_file(t, run, attempt, node_rank, path, size, sha256))
    return FileReceived(path)


@router.post("/{node}/files", status_code=201)
async def put_files(
    node: NodeOf, request: Request, context: ContextOf, run: str, attempt: int, node_rank: int
) -> FilesReceived:
    """Small files that an attempt left, batched: one call and one write for all of them."""
    if node_rank != await context.database.read(lambda c: node_rank_of(c, run, attempt, node)):
        raise errors.NotFound(f"attempt {attempt} of {run} is not on {node}")
    try:
        files = list(decode_files(BytesIO(await _bounded_body(request))))
    except ValueError as error:
        raise errors.JobError(f"the files are malformed: {error}") from error
    unfit = {file.path: why for file, _ in files if (why := _unfit(context, run, attempt, file.path))}
    await _note_unfit(context, run, unfit)
    files = [(file, content) for file, content in files if file.path not in unfit]
    if await asyncio.to_thread(_is_given_up, context, run):
        return FilesReceived(len(files))
    folder = f"runs/{safe_path(run)}/attempts/{attempt}"
    objects = [
        (f"{folder}/{stored_name(node_rank, safe_path(file.path))}", content, file.sha256) for file, content in files
    ]
    await asyncio.to_thread(context.files.store.put_all, objects)
    await context.database.write(lambda t: record_files(t, run, attempt, node_rank, [file for file, _ in files]))
    return FilesReceived(len(files))


async def _bounded_body(request: Request) -> bytes:
    """The whole body, which must fit into memory."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > FILES_BODY_BYTES:
            limit = f"{FILES_BODY_BYTES >> 20} MiB"
            raise errors.JobError(f"files of more than {limit} came together", "Send large files one by one.")
    return bytes(body)


def _is_given_up(context: Context, run: str) -> bool:
    """Whether the disk is full and nobody waits for what the run still delivers."""
    full = context.disk.full
    return full != "" and bool(disk.give_up(context.disk, context.database, {run}, full))


async def _note_unfit(context: Context, run: str, unfit: Mapping[str, str]) -> None:
    def note(transaction: Transaction) -> None:
        for path, why in unfit.items():
            text = f"the file {storable(path)[:_NAME_LENGTH]} is left out: {why}"
            add_note_once(transaction, run, "warning", text)

    if unfit:
        await context.database.write(note)


def _unfit(context: Context, run: str, attempt: int, path: str) -> str:
    """Why a file cannot be kept under the name that a rank gave it; empty where it can."""
    if not is_safe_path(path) or not is_encodable(path):
        return "its name is not valid"
    if any(len(part.encode()) > _NAME_LENGTH for part in path.split("/")) or len(path.encode()) > _PATH_LENGTH:
        return "its name is too long"
    if path.startswith(("user_logs/", "events/")) and context.files.streams.path(run, attempt, path).exists():
        return "its name is that of a log"
    return ""


def _note_preparations(context: Context, contact: NodeContact, doing: Iterable[tuple[str, int, str, float]]) -> None:
    """Note the progress of long preparations, and wake the followers of runs where it has changed."""
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
        seen = partial(allocations.see_agent, context, body.node)
        transaction.after_commit.append(lambda: context.hub.in_background(seen))
    open_here = transaction.execute(
        select(placements).where(placements.c.node == body.node, placements.c.phase.in_(states.IS_OPEN))
    ).all()
    if brought and not open_here and not holding:
        # It came with an attempt that is over, and has nothing left to do.
        context.hub.leaving_nodes.add(body.node)
        transaction.after_commit.append(lambda: context.hub.changed(nodes=[body.node]))
    begun = (states.PREPARED, states.STARTED, states.ENDED)
    for key in [(row.run_id, row.number) for row in open_here if row.phase in begun]:
        if key not in holding:
            # The agent's folder has lost what the server waits for: nothing more will come from that attempt.
            attempts.lose_node(context, transaction, body.node, give_up=True, only=key)
    for run_id in sorted({row.run_id for row in open_here}):
        attempts.advance(context, transaction, run_id)


def _is_brought(context: Context, transaction: Transaction, cluster: str) -> bool:
    """Whether the nodes of a cluster come with each attempt."""
    name = transaction.execute(select(tables.clusters.c.engine).where(tables.clusters.c.name == cluster)).scalar()
    return context.nodes.engines.queue(name) is not None


def _append(context: Context, node: str, chunks: list[Chunk]) -> dict[tuple[str, int, str], int]:
    """Append chunks of open attempts of this node; a chunk of any other attempt is refused whole."""
    placements = tables.placements
    wanted = {(chunk.run, chunk.attempt) for chunk in chunks}
    rows = context.database.read_now(
        lambda c: c.execute(
            select(placements.c.run_id, placements.c.number).where(
                placements.c.node == node,
                placements.c.run_id.in_({run for run, _ in wanted}),
                placements.c.phase != states.CLOSED,
            )
        ).all()
    )
    mine = {(row.run_id, row.number) for row in rows}
    accepted = [chunk for chunk in chunks if (chunk.run, chunk.attempt) in mine and _is_stream(chunk.stream)]
    if context.disk.full:
        lengths = _discard_given_up(context, accepted, context.disk.full)
    else:
        try:
            lengths = context.files.streams.append(accepted)
        except OSError as error:
            if not disk.is_full_error(error):
                raise
            lengths = _discard_given_up(context, accepted, f"the disk of {context.paths.store} is full")
    _index(context, lengths)
    context.printed.read(chunk for chunk in accepted if chunk.stream.startswith(PRINTED))
    for chunk in chunks:
        # A run that was removed or is over, or a name that a rank made up, takes no bytes: they count as delivered.
        if (chunk.run, chunk.attempt) not in mine or not _is_stream(chunk.stream):
            lengths[chunk.run, chunk.attempt, chunk.stream] = chunk.offset + len(chunk.data)
    return lengths


RANK_EVENTS = "events/rank_"
"""What ranks log; what nodes measure about themselves says nothing about a script."""


def _index(context: Context, lengths: Mapping[tuple[str, int, str], int]) -> None:
    """Note in which order logs grew, for their followers."""
    grown: dict[str, dict[Log, int]] = {}
    for (run, attempt, stream), length in lengths.items():
        if stream.startswith((PRINTED, RANK_EVENTS)):
            context.runs.note_movement(run)
        if stream.startswith(PRINTED):
            grown.setdefault(run, {})[Log(attempt, stream)] = length
    for run, logs in grown.items():
        context.files.arrivals.record(run, logs)


def _discard_given_up(context: Context, chunks: list[Chunk], why: str) -> dict[tuple[str, int, str], int]:
    """On a full disk the bytes of cancelled runs count as delivered, so that these can end and be removed.

    Other nodes keep theirs until there is room.
    """
    given_up = disk.give_up(context.disk, context.database, {chunk.run for chunk in chunks}, why)
    if not given_up:
        raise disk_full(why)
    streams = context.files.streams
    lengths = {(c.run, c.attempt, c.stream): streams.length(c.run, c.attempt, c.stream) for c in chunks}
    for chunk in chunks:
        key = (chunk.run, chunk.attempt, chunk.stream)
        if chunk.run in given_up:
            lengths[key] = max(lengths[key], chunk.offset + len(chunk.data))
    return lengths


def _is_stream(name: str) -> bool:
    """Whether a stream can be kept under its name; ranks may leave files of any name among their logs."""
    return len(name) <= _NAME_LENGTH and is_encodable(name) and is_safe_path(name)


def _record_delivery(
    context: Context,
    transaction: Transaction,
    node: str,
    events: list[Event],
    parse: list[tuple[str, int, str]],
    held: set[AttemptKey],
    singly: bool = False,
) -> tuple[AttemptKey, ...]:
    """Record what was delivered; returns what the node may forget of what it holds.

    With `singly` what cannot be recorded is left out, with a note.
    """
    for run, attempt, stream in parse:
        ingest.parse_events(context, transaction, run, attempt, stream)
    if not singly:
        attempts.take_events(context, transaction, node, events)
    else:
        for event in events:
            _record_if_usable(context, transaction, node, event)
    return forgettable(transaction.connection, node, held)


def _record_if_usable(context: Context, transaction: Transaction, node: str, event: Event) -> None:
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
    add_note_once(transaction, event.run, "error", text)
