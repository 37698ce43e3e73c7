"""The next state of a cluster's node: a pure decision over its recorded and its observed state."""

from __future__ import annotations

from dataclasses import dataclass

from muster.defaults import NODE_START_S


@dataclass(frozen=True)
class Seen:
    """One node: its recorded state, and what its engine and its agent report now."""

    name: str
    state: str
    since: float
    life: str
    """starting | up | gone, by its engine."""
    why: str = ""
    here: bool = False
    """Its agent has said hello."""
    setup_error: str | None = None
    busy: bool = False
    taken_back: bool = False
    """Its agent was told to leave while it had work: the machine is wanted elsewhere."""


@dataclass(frozen=True)
class Change:
    name: str
    state: str
    reason: str = ""


def next_state(node: Seen, now: float) -> Change | None:
    """The node's next state, or None when it stays as it is."""
    if node.state == "preparing":
        return _preparing(node, now)
    if node.state in ("idle", "running") and node.taken_back:
        return Change(node.name, "preempted", "its machine was taken back")
    if node.life == "gone" and not node.busy:
        return None if node.state == "unusable" else Change(node.name, "gone", _last_words(node))
    if node.state in ("idle", "running") and node.busy != (node.state == "running"):
        return Change(node.name, "running" if node.busy else "idle")
    return None


def _preparing(node: Seen, now: float) -> Change | None:
    if node.here and node.setup_error is not None:
        return Change(node.name, "unusable", f"its set-up failed: {node.setup_error}")
    if node.here:
        return Change(node.name, "idle", "ready")
    if node.life == "gone" and now - node.since > NODE_START_S:
        cause = f": {node.why}" if node.why else ""
        return Change(node.name, "unusable", f"its agent did not come{cause}")
    return None


def _last_words(node: Seen) -> str:
    if node.state == "leaving":
        return "it has left"
    return "its machine was taken back" if node.state == "preempted" else "its agent ended"
