"""Endpoints, their deployments, and the runs that serve them."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "endpoints",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("description", sa.Text),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("properties", sa.JSON, nullable=False),
        sa.Column("auth_mode", sa.String(16), nullable=False),
        sa.Column("traffic", sa.JSON, nullable=False),
        sa.Column("mirror", sa.JSON, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("compute", sa.String(255)),
        sa.Column("host", sa.String(255)),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.String(255)),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    op.create_table(
        "deployments",
        sa.Column("endpoint", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("model", sa.String(255)),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
    )
    op.create_table(
        "endpoint_runs",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("endpoint", sa.String(32), nullable=False),
        sa.Column("deployment", sa.String(32)),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("address", sa.String(255)),
        sa.Column("replicas", sa.JSON, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
    )
    op.create_index("endpoint_runs_open", "endpoint_runs", ["endpoint", "state"])
