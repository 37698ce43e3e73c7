"""How often a queued run was passed over, and since when it is the first that waits."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("runs", sa.Column("passed_over", sa.JSON))
