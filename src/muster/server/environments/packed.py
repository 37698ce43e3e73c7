"""Environments that nodes take from each other: who builds one, and its blocks once it is packed. In memory."""

from __future__ import annotations

import re
import time

from muster.defaults import NODE_LOST_S
from muster.errors import JobError
from muster.server.context import Context
from muster.storage.peers.blocks import Row, everything, shelf_name
from muster.wire.data.access import FileEntry
from muster.wire.node.builds import PACKED_NAME, EnvironmentClaim, PackedEnvironment
from muster.wire.node.peers import place_name

_KEY = re.compile("[0-9a-f]{64}")


def checked(key: str) -> str:
    """Refuse what is not a key of an environment."""
    if not _KEY.fullmatch(key):
        raise JobError(f"{key[:80]!r} is no key of an environment", "Give 64 hexadecimal digits.")
    return key


def claim(context: Context, node: str, key: str) -> EnvironmentClaim:
    """A node needs an environment: it downloads it, builds it for all, or waits for the node that does."""
    found = context.runs.builds.packed.by_key.get(checked(key))
    if found is not None and _is_held(context, node, key, found):
        return EnvironmentClaim("there", found)
    alive = [(name, contact.agent) for name, contact in context.hub.contacts.items()]
    builds = context.runs.builds.claims.take(f"environment {key}", node, dict(alive).get(node, ""), alive, time.time())
    return EnvironmentClaim("build" if builds else "wait")


def keep(context: Context, node: str, key: str, packed: PackedEnvironment) -> None:
    """A node has built and packed it."""
    context.runs.builds.packed.keep(checked(key), packed)
    release(context, node, key)


def release(context: Context, node: str, key: str) -> None:
    """A node gives up building it."""
    context.runs.builds.claims.release(f"environment {key}", node)


def _is_held(context: Context, node: str, key: str, packed: PackedEnvironment) -> bool:
    """Whether another node still has all of it."""
    row = Row([FileEntry(PACKED_NAME, packed.size, packed.sha256)])
    shelf = shelf_name(place_name("environment", key), row.content() or "")
    return any(
        have == everything(row.count) and other != node and context.hub.silent_s(other) < NODE_LOST_S
        for other, have in context.data.board.blocks_of(shelf)
    )
