"""Versions of models with a place of their own, their type, size, hashes and formats."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("models", sa.Column("type", sa.String(32), nullable=False, server_default="custom_model"))
    op.add_column("models", sa.Column("address", sa.Text))
    op.add_column("models", sa.Column("num_files", sa.Integer))
    op.add_column("models", sa.Column("size", sa.BigInteger))
    op.add_column("models", sa.Column("digest", sa.String(64)))
    op.add_column("models", sa.Column("formats", sa.JSON))
    op.create_table(
        "model_files",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64)),
        sa.Column("etag", sa.Text),
    )
