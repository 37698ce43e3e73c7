"""Tables of what runs logged: metrics in blocks with summaries, parameters, tags."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from muster.server.database.schema import metadata

metric_series = Table(
    "metric_series",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("source", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("type", String(16), nullable=False),
    Column("num_points", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("last", JSON),
    Column("last_number", Float),
    Column("least", Float),
    Column("least_step", Float),
    Column("greatest", Float),
    Column("greatest_step", Float),
    Column("first_step", Float),
    Column("last_step", Float),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("last_order", BigInteger, nullable=False),
    UniqueConstraint("run_id", "attempt", "source", "name", "type", name="metric_series_key"),
    Index("metric_series_name", "name", "run_id"),
)
"""A row for each metric that one source logged in one attempt: its summary."""

metric_blocks = Table(
    "metric_blocks",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("series", Integer, primary_key=True),
    Column("tier", Integer, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("first_order", BigInteger, nullable=False),
    Column("last_order", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("metric_blocks_order", "run_id", "tier", "last_order"),
)
"""Points of a series (tier 0), and the most distinct out of every so many (tiers 1 and above)."""

metric_tails = Table(
    "metric_tails",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("source", String(255), primary_key=True),
    Column("first_order", BigInteger, primary_key=True),
    Column("last_order", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("points", JSON, nullable=False),
    Index("metric_tails_order", "run_id", "last_order"),
)
"""Points of all series of a source in order of arrival, until there are enough for blocks."""

metric_counts = Table(
    "metric_counts",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("last_order", BigInteger, nullable=False),
    Column("num_series", Integer, nullable=False),
)

params = Table(
    "params",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("number", Float),
    Index("params_name", "name", "run_id"),
)
"""Parameters of runs; `number` is the numeric value, if it is one, to sort by."""

run_tags = Table(
    "run_tags",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
)
"""Tags that tools set for themselves (`mlflow.…`); those of people are in the run's row."""
