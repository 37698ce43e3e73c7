"""The tables of the workspace database."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
)

metadata = MetaData()

# SQLite numbers rows by itself only in a column of exactly this type.
RowId = BigInteger().with_variant(Integer, "sqlite")

versions = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))

runs = Table(
    "runs",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=True),
    Column("id", String(255), nullable=False, unique=True),
    Column("key", String(255), nullable=False, unique=True),
    Column("name", String(255)),
    Column("display_name", Text),
    Column("experiment", String(255), nullable=False),
    Column("status", String(32), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("queued_at", Float),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("spec", JSON, nullable=False),
    Column("snapshot", String(64)),
    Column("python", Text),
    Column("submitted_by", Text),
    Column("compute", String(255), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("num_nodes", Integer, nullable=False),
    Column("num_ranks", Integer, nullable=False),
    Column("ranks_per_node", Integer, nullable=False),
    Column("gpus_per_node", Integer),
    Column("timeout_s", Float),
    Column("preemptible", Boolean),
    Column("attempt", Integer, nullable=False),
    Column("cancel", String(16)),
    Column("cancel_by", Text),
    Column("tags", JSON, nullable=False),
    Column("description", Text),
    Column("notices", JSON, nullable=False),
    Column("verdict", JSON),
    Column("retry_at", Float),
    Column("excluded_nodes", JSON),
    Column("budget_from", Integer),
    Column("environment", JSON),
    Column("forecast", JSON(none_as_null=True)),
    Index("runs_queue", "status", "priority", "seq"),
    Index("runs_name", "name"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("status", String(32), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("stop_reason", String(32)),
    Column("stop_grace_s", Float),
    Column("timed_out", Boolean, nullable=False),
    Column("plan", JSON),
    Column("verdict", JSON),
    Column("granted_at", Float),
    Column("ending", JSON),
    Column("job_id", String(255)),
)

placements = Table(
    "placements",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("node_rank", Integer, primary_key=True),
    Column("cluster", String(255), nullable=False),
    Column("node", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("address", String(255), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("gpus", JSON, nullable=False),
    Column("ranks", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("lost", Boolean, nullable=False),
    Column("ports", JSON, nullable=False),
    Column("refusal", JSON),
    Column("price_per_hour", Float),
    Column("leaving", Boolean, nullable=False),
    Column("resumed", BigInteger),
    Column("facts", JSON),
    Index("placements_active", "phase", "cluster", "node"),
)

ranks = Table(
    "ranks",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("node_rank", Integer, nullable=False),
    Column("role", String(32), nullable=False),
    Column("essential", Boolean, nullable=False),
    Column("log", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("pid", Integer),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("expected", Boolean, nullable=False),
    Column("evidence", JSON, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("run_id", String(255), nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("data", JSON, nullable=False),
    Index("events_run", "run_id", "id"),
)

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
"""Points of a series (tier 0), and those that stand out of every so many of them (tiers 1 and above)."""

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
"""Points of all series of a source as they came, until there are enough of them for blocks."""

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
)

run_tags = Table(
    "run_tags",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
)
"""Tags that tools set for themselves (`mlflow.…`); those of people are in the run's row."""

progress = Table(
    "progress",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("done", Float, nullable=False),
    Column("total", Float),
    Column("unit", Text, nullable=False),
)

streams = Table(
    "streams",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("stream", String(255), primary_key=True),
    Column("parsed", BigInteger, nullable=False),
)

files = Table(
    "files",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("node_rank", Integer, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("run_id", String(255), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("node_rank", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("key", String(64), nullable=False),
    Column("files", JSON, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("at", Float, nullable=False),
    UniqueConstraint("run_id", "attempt", "node_rank", "key"),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("num_files", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("used_at", Float),
)

clusters = Table(
    "clusters",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("engine", String(32), nullable=False),
    Column("options", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("agent", String(64)),
    Column("host", Text),
    Column("address", Text),
    Column("pid", Integer),
    Column("cpus", Integer),
    Column("memory_bytes", BigInteger),
    Column("gpus", JSON),
    Column("version", String(64)),
    Column("seen_at", Float),
)

node_states = Table(
    "node_states",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", Float, nullable=False),
    Column("cordoned", Text),
    Column("strikes", Integer, nullable=False),
)

node_history = Table(
    "node_history",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("cluster", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("at", Float, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Index("node_history_cluster", "cluster", "name", "id"),
)

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
"""Have the database itself refuse to change what was recorded."""

for _dialect, _statements in AUDIT_STAYS.items():
    for _statement in _statements:
        event.listen(audit, "after_create", DDL(_statement).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]

models = Table(
    "models",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("run_id", String(255)),
    Column("path", Text, nullable=False),
    Column("description", Text),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float),
    Column("stage", String(32), nullable=False, server_default="None"),
    Column("source", Text),
    Column("logged_model", String(64)),
    Column("created_by", Text),
)
"""The versions of registered models."""

registered_models = Table(
    "registered_models",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("description", Text),
    Column("tags", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

model_aliases = Table(
    "model_aliases",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("alias", String(255), primary_key=True),
    Column("version", Integer, nullable=False),
)

logged_models = Table(
    "logged_models",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("experiment", String(255), nullable=False),
    Column("run_id", String(255), nullable=False),
    Column("name", Text, nullable=False),
    Column("type", String(255), nullable=False),
    Column("status", String(64), nullable=False),
    Column("params", JSON, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Index("logged_models_run", "run_id"),
)

experiments = Table(
    "experiments",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("name", String(500), nullable=False, unique=True),
    Column("tags", JSON, nullable=False),
    Column("lifecycle", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

datastores = Table(
    "datastores",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("options", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("sealed", Text),
    Column("description", Text),
    Column("owner", String(64)),
)

assets = Table(
    "assets",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("version", String(64), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("type", String(32), nullable=False),
    Column("address", Text, nullable=False),
    Column("num_files", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digest", String(64)),
    Column("description", Text),
    Column("tags", JSON, nullable=False),
    Column("run_id", String(255)),
    Column("created_by", Text),
    Column("created_at", Float, nullable=False),
)

asset_files = Table(
    "asset_files",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("version", String(64), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64)),
    Column("etag", Text),
)

grants = Table(
    "grants",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("store", String(255), nullable=False),
    Column("path", Text, nullable=False),
    Column("scope", String(16), nullable=False),
    Column("subject", String(255), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("revoked_at", Float),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("sealed", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("updated_by", Text),
    Column("owner", String(64)),
    Column("shared", Boolean),
)

environments = Table(
    "environments",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("spec", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
)

output_files = Table(
    "output_files",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("output", String(255), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("node_rank", Integer, primary_key=True),
    Column("name", Text),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
)
