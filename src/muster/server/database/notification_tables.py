"""Tables of notifications: subscriptions and the outbox."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Index, Integer, String, Table, Text

from muster.server.database.schema import metadata

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), unique=True),
    Column("run_id", String(255)),
    Column("receiver", String(32)),
    Column("owner", String(64)),
    Column("kind", String(16), nullable=False),
    Column("shown", Text, nullable=False),
    Column("sealed", Text),
    Column("wanted", JSON, nullable=False),
    Column("runs", String(16), nullable=False),
    Column("quiet_s", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("subscriptions_run", "run_id"),
)
"""Receivers by name, and subscriptions to one run: with an address of their own, or of a `receiver`."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("target", String(32), nullable=False),
    Column("run_id", String(255)),
    Column("event", String(16), nullable=False),
    Column("body", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due_at", Float),
    Column("taken_at", Float),
    Column("given_up", Boolean, nullable=False),
    Column("answer", Text, nullable=False),
    Index("deliveries_due", "due_at"),
    Index("deliveries_target", "target", "created_at"),
)
"""Notifications; `target` is the subscription whose address gets it."""

outbox = Table(
    "outbox",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
"""The last event that notifications were made for."""
