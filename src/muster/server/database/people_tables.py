"""Tables of people, their tokens, and what they did."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    Column,
    Float,
    Index,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
)

from muster.server.database.schema import RowId, metadata

tokens = Table(
    "tokens",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("subject", String(255), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("label", Text),
    Column("used_at", Float),
    UniqueConstraint("role", "subject", "hash"),
)

people = Table(
    "people",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("created_by", String(64)),
    Column("disabled_at", Float),
    Column("removed_at", Float),
    Column("sso", Text),
    Column("unix_user", String(64)),
)

audit = Table(
    "audit",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("who", String(255), nullable=False),
    Column("role", String(16), nullable=False),
    Column("token", String(16), nullable=False),
    Column("source", String(255), nullable=False),
    Column("action", String(32), nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("detail", Text, nullable=False),
    Index("audit_who", "who", "id"),
)

AUDIT_STAYS = {
    "sqlite": (
        "CREATE TRIGGER IF NOT EXISTS audit_changed BEFORE UPDATE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END",
        "CREATE TRIGGER IF NOT EXISTS audit_removed BEFORE DELETE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log is only added to'; END $$",
        "CREATE OR REPLACE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_stays()",
    ),
}
"""Triggers by which the database itself refuses to change the audit log."""

for _dialect, _statements in AUDIT_STAYS.items():
    for _statement in _statements:
        event.listen(audit, "after_create", DDL(_statement).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]
