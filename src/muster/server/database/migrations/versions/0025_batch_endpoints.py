"""Batch endpoints and their deployments; runs that share a GPU with others."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "batch_endpoints",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("description", sa.Text),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("properties", sa.JSON, nullable=False),
        sa.Column("default_deployment", sa.String(32)),
        sa.Column("created_by", sa.String(255)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    op.create_table(
        "batch_deployments",
        sa.Column("endpoint", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("snapshot", sa.String(64)),
        sa.Column("model", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    op.add_column("runs", sa.Column("gpu_share", sa.Float))
