"""The tables of the workspace database."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from muster.server.database.endpoint_tables import (
    batch_deployments,
    batch_endpoints,
    deployments,
    endpoint_runs,
    endpoints,
)
from muster.server.database.fileserver_tables import file_servers, fills
from muster.server.database.model_tables import (
    logged_models,
    model_aliases,
    model_files,
    models,
    registered_models,
    retired_models,
)
from muster.server.database.notification_tables import deliveries, outbox, subscriptions
from muster.server.database.people_tables import AUDIT_STAYS, audit, people, tokens
from muster.server.database.schema import RowId, metadata
from muster.server.database.tracking_tables import (
    metric_blocks,
    metric_counts,
    metric_series,
    metric_tails,
    params,
    run_tags,
)

__all__ = [
    "AUDIT_STAYS",
    "asset_files",
    "assets",
    "attempts",
    "audit",
    "batch_deployments",
    "batch_endpoints",
    "checkpoints",
    "clusters",
    "datastores",
    "deliveries",
    "deployments",
    "endpoint_runs",
    "endpoints",
    "environments",
    "events",
    "experiments",
    "file_servers",
    "files",
    "fills",
    "grants",
    "logged_models",
    "metadata",
    "metric_blocks",
    "metric_counts",
    "metric_series",
    "metric_tails",
    "model_aliases",
    "model_files",
    "models",
    "node_history",
    "node_states",
    "nodes",
    "outbox",
    "output_files",
    "params",
    "people",
    "placements",
    "progress",
    "ranks",
    "registered_models",
    "retired_models",
    "run_tags",
    "runs",
    "secrets",
    "snapshots",
    "streams",
    "subscriptions",
    "tokens",
    "versions",
]

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
    Column("gpu_share", Float),
    Column("passed_over", JSON(none_as_null=True)),
    Index("runs_queue", "status", "priority", "seq"),
    Index("runs_name", "name"),
    Index("runs_experiment", "experiment", "seq"),
    Index("runs_person", "submitted_by", "seq"),
    Index("runs_status", "status", "seq"),
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
    Column("queue_job", JSON(none_as_null=True)),
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
    # Ids are never reused: a reader that resumes after the last id it saw would miss an event with a reused one.
    sqlite_autoincrement=True,
)

progress = Table(
    "progress",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("done", Float, nullable=False),
    Column("total", Float),
    Column("unit", Text, nullable=False),
    Column("printed", Boolean),
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
    Column("archived_at", Float),
    Column("removed_at", Float),
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
