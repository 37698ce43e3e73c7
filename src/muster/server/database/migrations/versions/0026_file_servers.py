"""File servers, and what they are filled with."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.create_table(
        "file_servers",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("owner_key", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("wanted_folder", sa.Text),
        sa.Column("clients", sa.String(64), nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("run_id", sa.String(255)),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("address", sa.String(255)),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("folder", sa.Text),
        sa.Column("used_bytes", sa.BigInteger, nullable=False),
        sa.Column("trouble", sa.Text),
        sa.Column("has_served", sa.Boolean, nullable=False),
        sa.Column("removes", sa.Boolean, nullable=False),
        sa.Column("created_by", sa.String(255)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    op.create_table(
        "fills",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("server", sa.String(32), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("progress", sa.JSON, nullable=False),
        sa.Column("created_by", sa.String(255)),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_index("fills_by_server", "fills", ["server"])
