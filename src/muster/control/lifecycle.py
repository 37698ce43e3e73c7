"""What an attempt does next: a pure decision over its recorded state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.defaults import GRACE_CANCEL_S
from muster.wire import states


@dataclass(frozen=True)
class NodeView:
    """One node of the attempt."""

    node_rank: int
    name: str
    phase: str
    lost: bool = False
    here: bool = True
    """Its agent has said hello."""
    refused: bool = False
    leaving: bool = False
    """It was asked to leave."""


@dataclass(frozen=True)
class RankView(states.RankEnd):
    """One rank of the attempt."""

    rank: int
    node_rank: int
    essential: bool = True
    state: str = "waiting"
    exit_code: int | None = None
    signal: int | None = None
    expected: bool = False
    """Muster's own signal ended it."""
    waited: bool = False
    """It blamed other ranks, so how those ended matters."""


@dataclass(frozen=True)
class AttemptView:
    """The input of the decision."""

    run_status: states.RunStatus
    nodes: Sequence[NodeView]
    ranks: Sequence[RankView]
    planned: bool
    """The plan was made and the ranks were told to start."""
    cancel: str | None = None
    """None, "cancel" (with grace), "kill", or "abandon": nothing runs any more, undelivered files are given up."""
    timed_out: bool = False
    stop_reason: str | None = None
    ending_pending: bool = False
    """Whoever took its nodes back has not given a reason yet."""


@dataclass(frozen=True)
class Go:
    """Every node is prepared: make the plan, start the gang."""


@dataclass(frozen=True)
class Stop:
    """End the gang; a stronger stop replaces a weaker one."""

    reason: str
    grace_s: float


@dataclass(frozen=True)
class Move:
    """The run's next state."""

    status: states.RunStatus


@dataclass(frozen=True)
class Finish:
    """No process is left and all is delivered (or given up): judge and close."""


Action = Go | Stop | Move | Finish

_GONE = (states.ENDED, states.DELIVERED, states.GIVEN_UP, states.CLOSED)
_SETTLED = (states.DELIVERED, states.GIVEN_UP, states.CLOSED)


def decide(view: AttemptView) -> list[Action]:
    """The actions that take the attempt one step further; none when there is nothing to do."""
    actions: list[Action] = []
    stop = _stop(view)
    if stop:
        actions.append(stop)
    stopping = bool(stop or view.stop_reason)
    if not view.planned and not stopping and all(node.phase == states.PREPARED for node in view.nodes):
        actions.append(Go())
    status = _status(view, stopping)
    if status != view.run_status:
        actions.append(Move(status))
    if all(node.phase in _SETTLED for node in view.nodes) and not view.ending_pending:
        actions.append(Finish())
    return actions


def _stop(view: AttemptView) -> Stop | None:
    # What ended the ranks stays the reason, even if somebody cancels while their files are delivered.
    cancel = None if all(node.phase in _GONE for node in view.nodes) else view.cancel
    if cancel == "kill" and view.stop_reason != "killed":
        return Stop("killed", 0.0)
    if view.stop_reason:
        return None
    if cancel:
        return Stop("cancelled", GRACE_CANCEL_S)
    if any(node.refused for node in view.nodes):
        return Stop("refused", 0.0)
    if any(node.leaving for node in view.nodes):
        return Stop("preempted", GRACE_CANCEL_S)
    if any(node.lost for node in view.nodes):
        return Stop("node_lost", 0.0)
    if failed := [rank for rank in view.ranks if rank.failed]:
        return Stop("rank_waited" if any(rank.waited for rank in failed) else "rank_failed", 0.0)
    if view.timed_out:
        return Stop("timeout", GRACE_CANCEL_S)
    essential = [rank for rank in view.ranks if rank.essential]
    if essential and all(rank.succeeded for rank in essential) and any(rank.state != "ended" for rank in view.ranks):
        return Stop("done", 0.0)
    return None


def _status(view: AttemptView, stopping: bool) -> states.RunStatus:
    if all(node.phase in _GONE for node in view.nodes):
        return states.FINALIZING
    if view.cancel:
        return states.CANCEL_REQUESTED
    if view.run_status in (states.RUNNING, states.FINALIZING):
        return view.run_status
    if all(node.phase in (states.STARTED, *_GONE) for node in view.nodes):
        return states.RUNNING
    if stopping or all(node.here for node in view.nodes):
        return states.PREPARING
    return states.PROVISIONING
