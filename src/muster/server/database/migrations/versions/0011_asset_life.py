"""Data assets that are archived, and those that were removed, whose versions are not used again."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("assets", sa.Column("archived_at", sa.Float))
    op.add_column("assets", sa.Column("removed_at", sa.Float))
