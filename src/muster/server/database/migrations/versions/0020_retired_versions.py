"""Numbers of model versions that were removed, which are not given again; deployments on trial."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "retired_models",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
    )
    op.add_column("endpoints", sa.Column("canary", sa.JSON(none_as_null=True)))
