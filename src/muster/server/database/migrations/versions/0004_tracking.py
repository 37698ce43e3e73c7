"""Metrics in blocks with a summary of each series; parameters and tags of tools in tables."""

from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from muster.host.points import BLOCK_POINTS, Points, encode
from muster.server.tracking.summaries import Summary
from muster.server.tracking.thinning import TIER_STRETCHES, stand_outs

revision = "0004"
down_revision = "0003"

_ROWS = 10_000


def upgrade() -> None:
    series, blocks, counts = _create_metrics()
    _create_labels()
    _create_models()
    _move_metrics(series, blocks, counts)
    op.drop_table("metrics")


def _create_metrics() -> tuple[sa.Table, sa.Table, sa.Table]:
    series = op.create_table(
        "metric_series",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("num_points", sa.BigInteger, nullable=False),
        sa.Column("stored", sa.BigInteger, nullable=False),
        sa.Column("last", sa.JSON),
        *(
            sa.Column(name, sa.Float)
            for name in ("last_number", "least", "least_step", "greatest", "greatest_step", "first_step", "last_step")
        ),
        sa.Column("first_at", sa.Float, nullable=False),
        sa.Column("last_at", sa.Float, nullable=False),
        sa.Column("last_order", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("run_id", "attempt", "source", "name", "type", name="metric_series_key"),
    )
    op.create_index("metric_series_name", "metric_series", ["name", "run_id"])
    blocks = op.create_table(
        "metric_blocks",
        sa.Column("run_id", sa.String(255), primary_key=True),
        *(sa.Column(name, sa.Integer, primary_key=True) for name in ("series", "tier", "part")),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("first_order", sa.BigInteger, nullable=False),
        sa.Column("last_order", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("metric_blocks_order", "metric_blocks", ["run_id", "tier", "last_order"])
    op.create_table(
        "metric_tails",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("source", sa.String(255), primary_key=True),
        sa.Column("first_order", sa.BigInteger, primary_key=True),
        sa.Column("last_order", sa.BigInteger, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("points", sa.JSON, nullable=False),
    )
    op.create_index("metric_tails_order", "metric_tails", ["run_id", "last_order"])
    counts = op.create_table(
        "metric_counts",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("last_order", sa.BigInteger, nullable=False),
        sa.Column("num_series", sa.Integer, nullable=False),
    )
    return series, blocks, counts


def _create_labels() -> None:
    op.create_table(
        "params",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
    )
    op.create_table(
        "run_tags",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _create_models() -> None:
    """What MLflow knows of models and experiments, and Muster did not."""
    op.add_column("models", sa.Column("updated_at", sa.Float))
    op.add_column("models", sa.Column("stage", sa.String(32), nullable=False, server_default="None"))
    op.add_column("models", sa.Column("source", sa.Text))
    op.add_column("models", sa.Column("logged_model", sa.String(64)))
    op.add_column("models", sa.Column("created_by", sa.Text))
    registered = op.create_table(
        "registered_models",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("description", sa.Text),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    op.create_table(
        "model_aliases",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("alias", sa.String(255), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_table(
        "logged_models",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("experiment", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("type", sa.String(255), nullable=False),
        sa.Column("status", sa.String(64), nullable=False),
        sa.Column("params", sa.JSON, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    op.create_index("logged_models_run", "logged_models", ["run_id"])
    op.create_table(
        "experiments",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(500), nullable=False, unique=True),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("lifecycle", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    models = sa.table("models", sa.column("name"), sa.column("created_at"))
    known = sa.select(models.c.name, sa.func.min(models.c.created_at), sa.func.max(models.c.created_at))
    for name, first, last in op.get_bind().execute(known.group_by(models.c.name)).all():
        row = {"name": name, "tags": {}, "created_at": first, "updated_at": last}
        op.get_bind().execute(sa.insert(registered), row)


def _move_metrics(series: sa.Table, blocks: sa.Table, counts: sa.Table) -> None:
    """A run at a time, and of each no more than the blocks that are not full yet."""
    columns = ("id", "run_id", "attempt", "source", "name", "type", "step", "at")
    old = sa.table("metrics", *(sa.column(name) for name in columns), sa.column("value", sa.JSON))
    rows = op.get_bind().execution_options(yield_per=_ROWS).execute(sa.select(old).order_by(old.c.run_id, old.c.id))
    for run_id, found in groupby(rows, lambda row: row.run_id):
        moved = _Run(run_id, blocks)
        for row in found:
            moved.add(row)
        moved.finish(series, counts)


class _Run:
    """The series of one run while its points are read in order."""

    def __init__(self, run_id: str, blocks: sa.Table) -> None:
        self.run_id = run_id
        self.blocks = blocks
        self.summaries: dict[tuple[Any, ...], Summary] = {}
        self.held: dict[tuple[int, int], Points] = {}
        self.last_order = 0

    def add(self, row: Any) -> None:
        key = (row.attempt, row.source, row.name, row.type)
        summary = self.summaries.setdefault(key, Summary(len(self.summaries)))
        held = self.held.setdefault((summary.number, 0), Points())
        held.add(row.id, row.value, row.step, row.at)
        self.last_order = row.id
        if len(held) == BLOCK_POINTS:
            self._seal(summary, held)

    def finish(self, series: sa.Table, counts: sa.Table) -> None:
        by_number = {summary.number: summary for summary in self.summaries.values()}
        for (number, tier), held in self.held.items():
            if len(held):
                self._keep(number, tier, by_number[number].stored // BLOCK_POINTS // _blocks_per_part(tier), held)
            if tier == 0 and len(held):
                by_number[number].take_in(held)
                by_number[number].stored += len(held)
        names = ("attempt", "source", "name", "type")
        rows = [
            {"run_id": self.run_id, **dict(zip(names, key, strict=True)), **vars(summary)}
            for key, summary in self.summaries.items()
        ]
        op.get_bind().execute(sa.insert(series), rows)
        count = {"run_id": self.run_id, "last_order": self.last_order, "num_series": len(rows)}
        op.get_bind().execute(sa.insert(counts), count)

    def _seal(self, summary: Summary, block: Points) -> None:
        part = summary.stored // BLOCK_POINTS
        self._keep(summary.number, 0, part, block)
        for tier, stretch in enumerate(TIER_STRETCHES, 1):
            held = self.held.setdefault((summary.number, tier), Points())
            held.extend(block.chosen(stand_outs(block.values, stretch, is_first=part == 0)))
            group, place = divmod(part + 1, stretch)
            if place == 0:
                self._keep(summary.number, tier, group - 1, held)
                self.held[summary.number, tier] = Points()
        summary.take_in(block)
        summary.stored += len(block)
        self.held[summary.number, 0] = Points()

    def _keep(self, number: int, tier: int, part: int, points: Points) -> None:
        row = {
            "run_id": self.run_id, "series": number, "tier": tier, "part": part, "count": len(points),
            "first_order": points.orders[0], "last_order": points.orders[-1], "data": encode(points),
        }  # fmt: skip
        op.get_bind().execute(sa.insert(self.blocks), row)


def _blocks_per_part(tier: int) -> int:
    return TIER_STRETCHES[tier - 1] if tier else 1
