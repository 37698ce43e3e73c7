"""What the queue of a site calls an attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0003_sites"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("attempts", sa.Column("job_id", sa.String(255)))
