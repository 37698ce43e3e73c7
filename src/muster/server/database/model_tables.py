"""Tables of models: their versions and files, and what was logged before it was registered."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Float, Index, Integer, String, Table, Text

from muster.server.database.schema import metadata

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
    Column("type", String(32), nullable=False, server_default="custom_model"),
    Column("address", Text),
    Column("num_files", Integer),
    Column("size", BigInteger),
    Column("digest", String(64)),
    Column("formats", JSON(none_as_null=True)),
)
"""The versions of registered models."""

model_files = Table(
    "model_files",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64)),
    Column("etag", Text),
)
"""The files of a version, once its bytes are stored on their own."""

registered_models = Table(
    "registered_models",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("description", Text),
    Column("tags", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

retired_models = Table(
    "retired_models",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("version", Integer, primary_key=True),
)
"""Removed versions: their numbers are not reused."""

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
