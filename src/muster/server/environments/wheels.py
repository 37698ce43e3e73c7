"""Compiled wheels that nodes share: kept in the workspace store, compiled by one node at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.errors import JobError
from muster.host.files import is_safe_path
from muster.store.backend import Store
from muster.wire.codec import from_json, to_json
from muster.wire.node.builds import CompiledWheel, WheelClaim

CLAIM_S = 3600.0
"""How long others wait for a node at most."""
_KEY_LENGTH = 64


@dataclass
class Claims:
    """Which node compiles which wheel, for as long as this server lives."""

    by_key: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    """The node, its agent's id, and when it began."""

    def take(self, key: str, node: str, agent: str, alive: Iterable[tuple[str, str]], now: float) -> bool:
        """Whether this node compiles it: no other node does, or the one that did is gone or takes too long."""
        holder = self.by_key.get(key)
        if holder is not None and holder[0] != node and holder[:2] in set(alive) and now - holder[2] < CLAIM_S:
            return False
        self.by_key[key] = (node, agent, now)
        return True

    def release(self, key: str, node: str) -> None:
        if self.by_key.get(key, ("",))[0] == node:
            del self.by_key[key]


def location(key: str) -> str:
    """Where a wheel is kept; refuses what is not a key."""
    if not is_safe_path(key) or not key.isalnum() or len(key) > _KEY_LENGTH:
        raise JobError(f"{key[:_KEY_LENGTH]!r} is no key of a wheel", "Give letters and digits.")
    return f"wheels/{key}"


def about(store: Store, key: str) -> CompiledWheel | None:
    """The wheel of a key, where there is one."""
    name = f"{location(key)}/about.json"
    return from_json(CompiledWheel, json.loads(store.read(name))) if store.exists(name) else None


def keep(store: Store, key: str, wheel: CompiledWheel, pieces: Iterable[bytes]) -> None:
    """The file is stored first, so that every described wheel exists."""
    store.put(f"{location(key)}/wheel", pieces, sha256=wheel.sha256)
    store.put(f"{location(key)}/about.json", [json.dumps(to_json(wheel)).encode()])


def answer(found: CompiledWheel | None, compiles: bool) -> WheelClaim:
    """What a node that asks should do."""
    if found is not None:
        return WheelClaim("there", found)
    return WheelClaim("compile" if compiles else "wait")
