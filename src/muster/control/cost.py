"""Node hours and their price, summed by whatever they belong to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from muster.wire.clusters import CostLine


@dataclass(frozen=True)
class Use:
    """One node held by one attempt."""

    key: str
    run_id: str
    hours: float
    num_gpus: float = 0
    price_per_hour: float | None = None
    title: str = ""

    def as_total(self) -> Use:
        return replace(self, key="", title="")


def cost_by(uses: Iterable[Use]) -> list[CostLine]:
    """One line for each key, the largest first."""
    grouped: dict[str, list[Use]] = {}
    for use in uses:
        grouped.setdefault(use.key, []).append(use)
    return sorted((_line(key, group) for key, group in grouped.items()), key=lambda line: -line.node_hours)


def _line(key: str, uses: list[Use]) -> CostLine:
    priced = [use for use in uses if use.price_per_hour is not None]
    return CostLine(
        key=key,
        title=uses[0].title,
        runs=len({use.run_id for use in uses}),
        node_hours=round(sum(use.hours for use in uses), 4),
        gpu_hours=round(sum(use.hours * use.num_gpus for use in uses), 4),
        priced_node_hours=round(sum(use.hours for use in priced), 4),
        cost=round(sum(use.hours * (use.price_per_hour or 0.0) for use in priced), 4) if priced else None,
    )
