"""An attempt in the queue of its cluster: Slurm's job, Ray's placement group."""

from __future__ import annotations

from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.message import wire


@wire
class JobUsage:
    """The usage of an ended job, from a cluster's accounting."""

    state: str
    exit_code: str
    """As the queue writes it: Slurm's `CODE:SIGNAL`."""
    elapsed_s: float
    cpu_s: float | None = field(default=None, metadata=OMIT)
    memory_peak_bytes: int | None = field(default=None, metadata=OMIT)
    """The most that one task had at a time."""
    energy_j: float | None = field(default=None, metadata=OMIT)


@wire
class QueueJob:
    """What people need to query the queue themselves, and its last report."""

    id: str
    name: str = field(default="", metadata=OMIT)
    state: str = field(default="", metadata=OMIT)
    """In the queue's own words."""
    reason: str = field(default="", metadata=OMIT)
    """Why it waits, in the queue's own words."""
    partition: str = field(default="", metadata=OMIT)
    account: str = field(default="", metadata=OMIT)
    qos: str = field(default="", metadata=OMIT)
    nodes: str = field(default="", metadata=OMIT)
    """As the queue writes them: `n[1-4]`."""
    starts_at: float | None = field(default=None, metadata=OMIT)
    """When the queue expects to start it, while it waits."""
    link: str = field(default="", metadata=OMIT)
    """Where a browser shows it."""
    usage: JobUsage | None = field(default=None, metadata=OMIT)
    usage_note: str = field(default="", metadata=OMIT)
    """Why its usage is not known, once it is over."""
