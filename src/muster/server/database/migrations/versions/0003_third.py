"""What the queue of a site calls an attempt; what a run was told about its start."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("job_id", sa.String(255)))
    op.add_column("runs", sa.Column("forecast", sa.JSON))
