"""Appends points to the blocks and tiers of series; changes are written together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from sqlalchemy import Insert, bindparam, select
from sqlalchemy.dialects.postgresql import insert as upsert_postgres
from sqlalchemy.dialects.sqlite import insert as upsert_sqlite

from muster.host.points import BLOCK_POINTS, Points, decode, encode
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.tracking.thinning import TIER_STRETCHES, stand_outs

_BLOCKS = tables.metric_blocks
_KEY = ("run_id", "series", "tier", "part")
_LOAD = select(_BLOCKS.c.data).where(*(_BLOCKS.c[name] == bindparam(f"key_{name}") for name in _KEY))

_LOAD_OPEN = select(_BLOCKS.c.series, _BLOCKS.c.data).where(
    _BLOCKS.c.run_id == bindparam("run"),
    _BLOCKS.c.tier == 0,
    _BLOCKS.c.part == bindparam("part"),
    _BLOCKS.c.series.in_(bindparam("numbers", expanding=True)),
)
_SERIES_PER_QUERY = 500


class BlockRows:
    """The blocks of a run that change in one write."""

    def __init__(self, transaction: Transaction, run_id: str) -> None:
        self._transaction = transaction
        self._run_id = run_id
        self._changed: dict[tuple[int, int, int], Points] = {}
        self._open: dict[tuple[int, int, int], Points] = {}

    def load_open(self, stored: Mapping[int, int]) -> None:
        """Read the last blocks of series that have so many points, where these are not full, in few queries."""
        by_part: dict[int, list[int]] = defaultdict(list)
        for series, count in stored.items():
            part, inside = divmod(count, BLOCK_POINTS)
            if inside:
                by_part[part].append(series)
        for part, numbers in by_part.items():
            for begin in range(0, len(numbers), _SERIES_PER_QUERY):
                some = numbers[begin : begin + _SERIES_PER_QUERY]
                rows = self._transaction.execute(_LOAD_OPEN, {"run": self._run_id, "part": part, "numbers": some})
                self._open.update({(series, 0, part): decode(data) for series, data in rows})

    def append(self, series: int, stored: int, points: Points) -> None:
        """Add points at the end of a series that has so many; each block that fills up goes to the tiers."""
        part, inside = divmod(stored, BLOCK_POINTS)
        held = self._load(series, 0, part) if inside else Points()
        held.extend(points)
        for begin in range(0, len(held), BLOCK_POINTS):
            block = held.part(begin, begin + BLOCK_POINTS)
            self._changed[series, 0, part] = block
            if len(block) == BLOCK_POINTS:
                self._add_to_tiers(series, part, block)
            part += 1

    def write(self) -> None:
        rows = [
            {
                "run_id": self._run_id, "series": series, "tier": tier, "part": part, "count": len(points),
                "first_order": points.orders[0], "last_order": points.orders[-1], "data": encode(points),
            }
            for (series, tier, part), points in self._changed.items()
        ]  # fmt: skip
        if rows:
            self._transaction.execute(_keep(self._transaction.connection.dialect.name), rows)
        self._changed.clear()

    def _add_to_tiers(self, series: int, part: int, block: Points) -> None:
        for tier, stretch in enumerate(TIER_STRETCHES, 1):
            # So many blocks of points come to about two blocks of a tier, which is rewritten as it fills.
            group, position = divmod(part, stretch)
            held = self._load(series, tier, group) if position else Points()
            held.extend(block.chosen(stand_outs(block.values, stretch, is_first=part == 0)))
            self._changed[series, tier, group] = held

    def _load(self, series: int, tier: int, part: int) -> Points:
        known = self._changed.get((series, tier, part))
        if known is not None:
            return known
        held = self._open.pop((series, tier, part), None)
        if held is not None:
            return held
        key = {"key_run_id": self._run_id, "key_series": series, "key_tier": tier, "key_part": part}
        return decode(self._transaction.execute(_LOAD, key).scalar_one())


@cache
def _keep(dialect: str) -> Insert:
    adding = (upsert_sqlite if dialect == "sqlite" else upsert_postgres)(_BLOCKS)
    fresh = {column.name: adding.excluded[column.name] for column in _BLOCKS.c if column.name not in _KEY}
    return adding.on_conflict_do_update(index_elements=list(_KEY), set_=fresh)
