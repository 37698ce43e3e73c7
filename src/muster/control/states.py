"""The states of a run and of an attempt on a node."""

from __future__ import annotations

NOT_STARTED = "NotStarted"
QUEUED = "Queued"
PROVISIONING = "Provisioning"
PREPARING = "Preparing"
RUNNING = "Running"
FINALIZING = "Finalizing"
CANCEL_REQUESTED = "CancelRequested"
COMPLETED = "Completed"
FAILED = "Failed"
CANCELED = "Canceled"

TERMINAL = frozenset({COMPLETED, FAILED, CANCELED})
ACTIVE = frozenset({PROVISIONING, PREPARING, RUNNING, FINALIZING, CANCEL_REQUESTED})
ALL = (NOT_STARTED, QUEUED, PROVISIONING, PREPARING, RUNNING, FINALIZING, CANCEL_REQUESTED, COMPLETED, FAILED, CANCELED)

# Phases of an attempt on a node
ORDERED = "ordered"
PREPARED = "prepared"
STARTED = "started"
ENDED = "ended"
DELIVERED = "delivered"
GIVEN_UP = "given_up"
CLOSED = "closed"

HOLDS_RESOURCES = (ORDERED, PREPARED, STARTED)
"""Phases in which the node's CPUs and GPUs are taken."""
IS_OPEN = (ORDERED, PREPARED, STARTED, ENDED, DELIVERED)
"""Phases in which the agent still has something to do or to hear."""


class RankEnd:
    """How a rank that has ended counts."""

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
