"""Nodes that take staged data from each other: their certificates, their grants, and who has what.

All of it is in memory: after a restart of the server, nodes report it again.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import replace

from sqlalchemy import Connection

from muster import errors
from muster.defaults import GRANT_S, NODE_LOST_S
from muster.host.network import in_url
from muster.server.context import Context
from muster.server.data import code, grants
from muster.server.data.state import PeerKeys
from muster.server.environments import packed
from muster.server.http.tls import made_for
from muster.server.runs import checkpoints
from muster.storage.grants import Grant, new_id, sign
from muster.storage.peers.blocks import shelf_name, to_text
from muster.storage.peers.board import Heard, Member
from muster.wire.data.access import READ, where_of
from muster.wire.node.peers import BlocksAnswer, BlocksRequest, PeerHello, PeerIdentity, PeerOffer, place_name

_KEY_BYTES = 32
_LAST_PORT = 65535
_ADDRESS = re.compile(r"[A-Za-z0-9.:_-]{1,253}")


def introduce(context: Context, node: str, hello: PeerHello) -> PeerIdentity:
    """A certificate and a key for a process that is about to serve blocks; those of an earlier one are forgotten."""
    if hello.address and not _ADDRESS.fullmatch(hello.address):
        raise errors.JobError(f"{hello.address!r} is no address of a node", "Give an IP address or a host's name.")
    certificate, private_key = made_for([hello.address] if hello.address else [])
    keys = PeerKeys(hello.address, certificate.decode(), secrets.token_bytes(_KEY_BYTES))
    context.data.peers[node] = keys
    context.data.board.forget_node(node)
    return PeerIdentity(keys.certificate, private_key.decode(), keys.grant_key.hex())


def place_of(context: Context, connection: Connection, node: str, body: BlocksRequest) -> str:
    """Its name among nodes, if the node may have it; raises AccessDenied."""
    match body.kind:
        case "code":
            code.admit_agent(connection, node, body.input)
            return place_name(body.kind, body.input)
        case "checkpoint":
            checkpoints.find(connection, body.run, node, int(body.input) if body.input.isdecimal() else -1)
            return place_name(body.kind, body.input)
        case "environment":
            # Like compiled wheels: for every node that knows what it is made of.
            return place_name(body.kind, packed.checked(body.input))
    holder, spec = grants.attempt_of(context, connection, node, body.run, body.attempt)
    access = grants.input_access(context, connection, grants.input_of(spec, body.input), holder)
    if access is None:
        raise errors.JobError(f"input {body.input!r} is read by the node itself", "It is not shared.")
    return where_of(access)


def report(context: Context, node: str, place: str, body: BlocksRequest) -> BlocksAnswer:
    """Take a node's report on its blocks, and answer with those of others."""
    board, shelf = context.data.board, shelf_name(place, body.report.content)
    for other in board.members_of(shelf):
        if other != node and context.hub.silent_s(other) > NODE_LOST_S:
            board.forget_node(other)
    keys = context.data.peers.get(node)
    url = _checked(node, keys.address, body.url) if keys is not None else ""
    try:
        heard = board.report(shelf, node, url, body.report, time.monotonic())
    except ValueError as error:
        raise errors.JobError(f"the report of {node} cannot be: {error}") from error
    subject = grants.Holder(body.run, body.attempt, same_machine=False).subject
    offers = [offer for peer in heard.peers if (offer := _offer(context, peer, shelf, subject)) is not None]
    notices = _notices(context, heard, body)
    return replace(heard.answer, peers=tuple(offers), notices=notices, unknown=bool(body.url) and not url)


def _checked(node: str, address: str, url: str) -> str:
    """The URL at which a node serves blocks: over TLS and on the node itself, or others would send grants elsewhere."""
    host, _, port = url.rpartition(":")
    if url and (host != f"https://{in_url(address)}" or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _LAST_PORT):
        raise errors.JobError(f"{node} cannot serve blocks at {url!r}", f"It is reached at {address}, by https.")
    return url


def _offer(context: Context, peer: Member, shelf: str, subject: str) -> PeerOffer | None:
    keys = context.data.peers.get(peer.node)
    if keys is None:
        return None
    now = time.time()
    # Another node checks it, whose clock may be slow or fast.
    grant = Grant(new_id(), peer.node, shelf, False, READ, now - GRANT_S, now + GRANT_S, subject)
    return PeerOffer(peer.node, peer.url, keys.certificate, sign(grant, keys.grant_key), to_text(peer.have))


def _notices(context: Context, heard: Heard, body: BlocksRequest) -> tuple[str, ...]:
    """Notices for the run's followers, once for all its nodes."""
    found = [
        f"{liar} served wrong bytes of {_named(body)} to another node. It was noticed and they were fetched "
        f"again; {liar} is not asked any more. Check its disk and memory."
        for liar in heard.new_liars
    ]
    told = (body.run, body.attempt, body.input)
    if body.report.unreachable and told not in context.data.unreachable_told:
        context.data.unreachable_told.add(told)
        found.append(
            f"{_named(body)}: nodes cannot reach each other to share it, so {_instead(body)}. "
            "Open the ports between the nodes, see that their clocks are right, or set `share_data: false` for the "
            "cluster."
        )
    return tuple(found)


def _named(body: BlocksRequest) -> str:
    return f"input {body.input}" if body.kind == "input" else f"the {body.kind}"


def _instead(body: BlocksRequest) -> str:
    if body.kind == "environment":
        return "each builds its own"
    return "each reads all of it from the " + ("source" if body.kind == "input" else "server")
