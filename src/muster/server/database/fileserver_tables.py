"""Tables of file servers and of what they are filled with."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Index, Integer, String, Table, Text

from muster.server.database.schema import RowId, metadata

file_servers = Table(
    "file_servers",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("owner_key", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("wanted_folder", Text),
    Column("clients", String(64), nullable=False),
    Column("description", Text),
    Column("run_id", String(255)),
    Column("attempt", Integer, nullable=False),
    Column("address", String(255)),
    Column("port", Integer, nullable=False),
    Column("folder", Text),
    Column("used_bytes", BigInteger, nullable=False),
    Column("trouble", Text),
    Column("has_served", Boolean, nullable=False),
    Column("removes", Boolean, nullable=False),
    Column("created_by", String(255)),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

fills = Table(
    "fills",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("server", String(32), nullable=False),
    Column("source", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("progress", JSON, nullable=False),
    Column("created_by", String(255)),
    Column("created_at", Float, nullable=False),
    Index("fills_by_server", "server"),
)
