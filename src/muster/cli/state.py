"""What is known of a run while it is followed, built from the events of its stream. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ENDED = ("Completed", "Failed", "Canceled")

_THROUGHPUT = re.compile(
    r"throughput|(?P<unit>images|samples|tokens|examples|items|records|rows|steps)(_per_|/)s(ec|econd)?", re.IGNORECASE
)
_LOSS = re.compile(r"(train(ing)?_)?loss", re.IGNORECASE)


@dataclass(frozen=True)
class Progress:
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
    """The latest of everything."""

    status: str = "NotStarted"
    reason: str = ""
    created_at: float | None = None
    started_at: float | None = None
    num_ranks: int = 0
    ranks: dict[int, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] | None = None
    _progress: dict[int, Progress] = field(default_factory=dict)
    _first_progress: dict[int, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, view: Mapping[str, Any]) -> RunState:
        state = cls(
            status=view["status"],
            reason=view.get("reason") or "",
            created_at=view.get("created_at"),
            started_at=view.get("started_at"),
            num_ranks=view.get("num_ranks") or 0,
        )
        state.metrics.update(view.get("metrics") or {})
        return state

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def progress(self) -> Progress | None:
        """That of the slowest rank: a gang is as far as its last one."""
        return min(list(self._progress.values()), key=lambda p: p.done / p.total if p.total else p.done, default=None)

    def apply(self, event: str, data: Mapping[str, Any], now: float) -> None:
        if event == "state":
            self._move(data)
        elif event == "rank":
            self.ranks[data["rank"]] = data["state"]
        elif event == "metric":
            self.metrics[data["name"]] = data["value"]
        elif event == "progress":
            self._advance(data, now)
        elif event == "end":
            self.status, self.verdict = data["status"], data.get("verdict")

    def count(self, state: str) -> int:
        return sum(1 for known in list(self.ranks.values()) if known == state)

    def _move(self, data: Mapping[str, Any]) -> None:
        self.status, self.reason = data["status"], data.get("reason") or ""
        if self.status == "Running":
            self.started_at = data.get("at") or self.started_at
        elif self.status in ("Queued", "Provisioning", "Preparing"):
            # A further attempt starts from nothing.
            self.ranks.clear()
            self._progress.clear()
            self._first_progress.clear()

    def _advance(self, data: Mapping[str, Any], now: float) -> None:
        rank, done = data.get("rank") or 0, data["done"]
        first_at, first_done = self._first_progress.setdefault(rank, (now, done))
        rate = (done - first_done) / (now - first_at) if done > first_done and now > first_at else None
        self._progress[rank] = Progress(done, data.get("total"), data.get("unit") or "", rate)


def throughput(metrics: Mapping[str, Any]) -> str | None:
    """Such as `812.4 images/s`, from a metric whose name says that it is one."""
    name = throughput_metric(metrics)
    if name is None:
        return None
    match = _THROUGHPUT.fullmatch(name)
    unit = match["unit"] if match else None
    return f"{metrics[name]:,.1f} {unit.lower()}/s" if unit else f"{metrics[name]:,.1f}/s"


def throughput_metric(metrics: Mapping[str, Any]) -> str | None:
    """The first metric whose name says that it is a throughput."""
    return next(
        (name for name, value in list(metrics.items()) if _THROUGHPUT.fullmatch(name) and _is_figure(value)), None
    )


def loss(metrics: Mapping[str, Any]) -> float | None:
    for name, value in list(metrics.items()):
        if _LOSS.fullmatch(name) and _is_figure(value):
            return float(value)
    return None


def _is_figure(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
