"""Notifications: who is told of what, and what is on its way; progress that scripts print."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("progress", sa.Column("printed", sa.Boolean))
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), unique=True),
        sa.Column("run_id", sa.String(255)),
        sa.Column("receiver", sa.String(32)),
        sa.Column("owner", sa.String(64)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("shown", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text),
        sa.Column("wanted", sa.JSON, nullable=False),
        sa.Column("runs", sa.String(16), nullable=False),
        sa.Column("quiet_s", sa.Float, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_index("subscriptions_run", "subscriptions", ["run_id"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("target", sa.String(32), nullable=False),
        sa.Column("run_id", sa.String(255)),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Float),
        sa.Column("taken_at", sa.Float),
        sa.Column("given_up", sa.Boolean, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
    )
    op.create_index("deliveries_due", "deliveries", ["due_at"])
    op.create_index("deliveries_target", "deliveries", ["target", "created_at"])
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
