"""Node hours and their price, summed by whatever they belong to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Use:
    """One node held by one attempt."""

    key: str
    run_id: str
    hours: float
    num_gpus: int = 0
    price_per_hour: float | None = None
    title: str = ""

    def as_total(self) -> Use:
        return replace(self, key="", title="")


@dataclass(frozen=True)
class Line:
    """What somebody or something used."""

    key: str
    title: str
    num_runs: int
    node_hours: float
    gpu_hours: float
    priced_hours: float
    """Node hours of which the price is known."""
    cost: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "runs": self.num_runs,
            "node_hours": round(self.node_hours, 4),
            "gpu_hours": round(self.gpu_hours, 4),
            "priced_node_hours": round(self.priced_hours, 4),
            "cost": None if self.cost is None else round(self.cost, 4),
        }


def cost_by(uses: Iterable[Use]) -> list[Line]:
    """One line for each key, the largest first."""
    grouped: dict[str, list[Use]] = {}
    for use in uses:
        grouped.setdefault(use.key, []).append(use)
    return sorted((_line(key, group) for key, group in grouped.items()), key=lambda line: -line.node_hours)


def _line(key: str, uses: list[Use]) -> Line:
    priced = [use for use in uses if use.price_per_hour is not None]
    return Line(
        key=key,
        title=uses[0].title,
        num_runs=len({use.run_id for use in uses}),
        node_hours=sum(use.hours for use in uses),
        gpu_hours=sum(use.hours * use.num_gpus for use in uses),
        priced_hours=sum(use.hours for use in priced),
        cost=sum(use.hours * (use.price_per_hour or 0.0) for use in priced) if priced else None,
    )
