"""What the queue of a cluster says of an attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("queue_job", sa.JSON))
