"""What is recorded of an attempt that has ended: plain data that the judgement looks at, and that can be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from muster.wire.states import RankEnd


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class NodeEvidence:
    """What is known of one node of the attempt."""

    node_rank: int
    name: str
    lost: bool = False
    """It or its agent went away without a word."""
    leaving: bool = False
    """It was told to go: preempted, or its agent was asked to end."""
    refusal: Mapping[str, Any] | None = None
    """Why the attempt could not be prepared there: code and message."""


@dataclass(frozen=True)
class Evidence:
    """All that the judgement looks at."""

    ranks: Sequence[RankEvidence] = ()
    nodes: Sequence[NodeEvidence] = ()
    stop_reason: str | None = None
    cancel_by: str | None = None
    timeout_s: float | None = None
    ending: Mapping[str, str] | None = None
    """How whoever lent the nodes says that it took them back: code and message."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evidence:
        return cls(
            ranks=tuple(RankEvidence(**item) for item in data["ranks"]),
            nodes=tuple(NodeEvidence(**item) for item in data["nodes"]),
            stop_reason=data["stop_reason"],
            cancel_by=data["cancel_by"],
            timeout_s=data["timeout_s"],
            ending=data.get("ending"),
        )
