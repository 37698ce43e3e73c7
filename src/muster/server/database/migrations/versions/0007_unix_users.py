"""The accounts of people on the machine, which their ranks run as where the server is root."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("people", sa.Column("unix_user", sa.String(64)))
