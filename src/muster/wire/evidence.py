"""What is recorded of an attempt that has ended: plain data that the verdict is judged from, and that can be kept."""

from __future__ import annotations

from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.message import wire
from muster.wire.states import RankEnd


@wire
class Refusal:
    """Why an attempt could not be prepared or started on a node."""

    code: str = field(default="", metadata=OMIT)
    """A verdict's code."""
    message: str = field(default="", metadata=OMIT)
    next: str = field(default="", metadata=OMIT)
    """What the user can do, where that is known better than by the code."""
    lines: tuple[str, ...] = field(default=(), metadata=OMIT)


@wire
class Ending:
    """How whoever lent the nodes says that it took them back."""

    code: str
    """A verdict's code; empty where it says nothing about the cause."""
    message: str


@wire
class RankEvidence(RankEnd):
    """What is known of one rank."""

    rank: int
    node: str
    exit_code: int | None = None
    signal: int | None = None
    expected: bool = False
    """Muster's own signal ended it."""
    essential: bool = True
    state: str = "ended"
    ended_at: float | None = None
    oom_killed: bool = False
    """The kernel counted a kill for want of memory on the node while it ended by SIGKILL."""
    refusal: str | None = None
    """Why it could not be started."""
    lost_with: str | None = None
    """Nobody saw its end: it went with its "keeper" or "agent"."""
    tail: str = ""
    """The end of what it printed."""
    command: str = ""
    """What it ran."""
    launcher_rank: int | None = None
    """Of a process that a launcher started (`torchrun`, `mpirun`): the launcher's own rank."""
    role: str = ""


@wire
class NodeEvidence:
    """What is known of one node of the attempt."""

    node_rank: int
    name: str
    lost: bool = False
    """It or its agent went away without a word."""
    leaving: bool = False
    """It was asked to go: preempted, or its agent was ended."""
    refusal: Refusal | None = None


@wire
class Evidence:
    """All that the judgement looks at."""

    ranks: tuple[RankEvidence, ...] = ()
    nodes: tuple[NodeEvidence, ...] = ()
    stop_reason: str | None = None
    cancel_by: str | None = None
    timeout_s: float | None = None
    ending: Ending | None = None
