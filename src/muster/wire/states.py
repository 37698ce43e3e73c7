"""The states of a run, of an attempt on a node, of a rank, and of clusters and their nodes."""

from __future__ import annotations

from typing import Final, Literal, get_args

Level = Literal["info", "warning", "error"]
"""Of a note."""

CHECKS = "cluster-check"
"""The experiment of the runs of `muster cluster check`, which `@latest` and lists leave out by default."""

RunStatus = Literal[
    "NotStarted",
    "Queued",
    "Provisioning",
    "Preparing",
    "Running",
    "Finalizing",
    "CancelRequested",
    "Completed",
    "Failed",
    "Canceled",
]

NOT_STARTED: Final = "NotStarted"
QUEUED: Final = "Queued"
PROVISIONING: Final = "Provisioning"
PREPARING: Final = "Preparing"
RUNNING: Final = "Running"
FINALIZING: Final = "Finalizing"
CANCEL_REQUESTED: Final = "CancelRequested"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
CANCELED: Final = "Canceled"

TERMINAL: frozenset[str] = frozenset({COMPLETED, FAILED, CANCELED})
ACTIVE: frozenset[str] = frozenset({PROVISIONING, PREPARING, RUNNING, FINALIZING, CANCEL_REQUESTED})
ALL: tuple[RunStatus, ...] = get_args(RunStatus)

Phase = Literal["ordered", "prepared", "started", "ended", "delivered", "given_up", "closed"]
"""Where an attempt is on one of its nodes."""

ORDERED: Final = "ordered"
PREPARED: Final = "prepared"
STARTED: Final = "started"
ENDED: Final = "ended"
DELIVERED: Final = "delivered"
GIVEN_UP: Final = "given_up"
CLOSED: Final = "closed"

HOLDS_RESOURCES: tuple[Phase, ...] = (ORDERED, PREPARED, STARTED)
"""Phases in which the node's CPUs and GPUs are taken."""
IS_OPEN: tuple[Phase, ...] = (ORDERED, PREPARED, STARTED, ENDED, DELIVERED)
"""Phases in which the agent still has something to do or to learn."""

RankState = Literal["waiting", "running", "ended"]
ClusterState = Literal["ready", "stopped", "deleting", "unreachable"]


class RankEnd:
    """Whether an ended rank counts as failed or succeeded."""

    state: str
    exit_code: int | None
    signal: int | None
    expected: bool

    @property
    def failed(self) -> bool:
        return self.state == "ended" and not self.expected and (self.exit_code != 0 or self.signal is not None)

    @property
    def succeeded(self) -> bool:
        return self.state == "ended" and self.exit_code == 0
