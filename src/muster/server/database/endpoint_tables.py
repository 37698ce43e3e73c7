"""Tables of endpoints, their deployments, and the runs that serve them."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Float, Index, Integer, String, Table, Text

from muster.server.database.schema import metadata

endpoints = Table(
    "endpoints",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("description", Text),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("auth_mode", String(16), nullable=False),
    Column("traffic", JSON, nullable=False),
    Column("mirror", JSON, nullable=False),
    Column("sealed", Text, nullable=False),
    Column("canary", JSON(none_as_null=True)),
    Column("compute", String(255)),
    Column("host", String(255)),
    Column("port", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_by", String(255)),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

deployments = Table(
    "deployments",
    metadata,
    Column("endpoint", String(32), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("spec", JSON, nullable=False),
    Column("model", String(255)),
    Column("revision", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

endpoint_runs = Table(
    "endpoint_runs",
    metadata,
    Column("run_id", String(255), primary_key=True),
    Column("endpoint", String(32), nullable=False),
    Column("deployment", String(32)),
    Column("revision", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("address", String(255)),
    Column("replicas", JSON, nullable=False),
    Column("since", Float, nullable=False),
    Index("endpoint_runs_open", "endpoint", "state"),
)

batch_endpoints = Table(
    "batch_endpoints",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("description", Text),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("default_deployment", String(32)),
    Column("created_by", String(255)),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

batch_deployments = Table(
    "batch_deployments",
    metadata,
    Column("endpoint", String(32), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("spec", JSON, nullable=False),
    Column("snapshot", String(64)),
    Column("model", Text),
    Column("revision", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)
