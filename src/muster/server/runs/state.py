"""What the server holds of runs that wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.job.parts import Retry
from muster.server.runs.queue import RunQueue


@dataclass
class RunsState:
    """The queue, and the workspace's defaults for runs."""

    queue: RunQueue = field(default_factory=RunQueue)
    """What waits, and why."""
    retry: Retry = field(default_factory=Retry)
    """The workspace's defaults of `retry` in a job file."""
