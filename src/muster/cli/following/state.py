"""The state of a followed run, built from the events of its stream. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.wire import states
from muster.wire.codec import Json
from muster.wire.runs import RunView
from muster.wire.states import RankState, RunStatus
from muster.wire.stream import (
    LogPiece,
    MetricLogged,
    ProgressMade,
    RankEnded,
    RankStarted,
    RunEnded,
    StateChanged,
    StreamEvent,
)


@dataclass(frozen=True)
class RankProgress:
    """The progress of one rank, and its rate."""

    done: float
    total: float | None
    unit: str
    rate_per_s: float | None = None

    @property
    def fraction(self) -> float | None:
        return min(1.0, max(0.0, self.done / self.total)) if self.total else None

    @property
    def left_s(self) -> float | None:
        if not self.total or not self.rate_per_s:
            return None
        return max(0.0, self.total - self.done) / self.rate_per_s


@dataclass
class RunState:
    """The latest state of a run."""

    status: RunStatus = states.NOT_STARTED
    reason: str = ""
    created_at: float | None = None
    started_at: float | None = None
    num_ranks: int = 0
    ranks: dict[int, RankState] = field(default_factory=dict)
    metrics: dict[str, Json] = field(default_factory=dict)
    moved_at: float | None = None
    """When it last printed or logged something."""
    _progress: dict[int, RankProgress] = field(default_factory=dict)
    _first_progress: dict[int, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, view: RunView) -> RunState:
        return cls(
            status=view.status,
            reason=view.reason,
            created_at=view.created_at,
            started_at=view.started_at,
            num_ranks=view.num_ranks,
            metrics=dict(view.metrics),
            moved_at=view.moved_at,
            ranks={
                rank.rank: rank.state for entry in view.attempts[-1:] for rank in entry.ranks if rank.state != "waiting"
            },
        )

    @property
    def ended(self) -> bool:
        return self.status in states.TERMINAL

    @property
    def progress(self) -> RankProgress | None:
        """The progress of the slowest rank, which is that of the gang."""
        return min(list(self._progress.values()), key=lambda p: p.done / p.total if p.total else p.done, default=None)

    def apply(self, event: StreamEvent, now: float) -> None:
        if isinstance(event, LogPiece | MetricLogged | ProgressMade):
            self.moved_at = now
        if isinstance(event, StateChanged):
            self._move(event)
        elif isinstance(event, RankStarted | RankEnded):
            self.ranks[event.rank] = event.state
        elif isinstance(event, MetricLogged):
            self.metrics[event.name] = event.value
        elif isinstance(event, ProgressMade):
            self._advance(event, now)
        elif isinstance(event, RunEnded):
            self.status = event.status

    def count(self, state: RankState) -> int:
        return sum(1 for known in list(self.ranks.values()) if known == state)

    def _move(self, event: StateChanged) -> None:
        self.status, self.reason = event.status, event.reason
        if event.status == states.RUNNING:
            self.started_at = event.at
            self.moved_at = event.at
        elif event.status in (states.QUEUED, states.PROVISIONING, states.PREPARING):
            # A new attempt starts from zero.
            self.moved_at = None
            self.ranks.clear()
            self._progress.clear()
            self._first_progress.clear()

    def _advance(self, event: ProgressMade, now: float) -> None:
        if event.done is None:
            return
        rank, done = event.rank or 0, event.done
        first_at, first_done = self._first_progress.setdefault(rank, (now, done))
        rate = (done - first_done) / (now - first_at) if done > first_done and now > first_at else None
        self._progress[rank] = RankProgress(done, event.total, event.unit or "", rate)
