"""People with roles, what they did, and to whom secrets and datastores belong."""

import sqlalchemy as sa
from alembic import op

from muster.server.database.tables import AUDIT_STAYS

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "people",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("created_by", sa.String(64)),
        sa.Column("disabled_at", sa.Float),
        sa.Column("removed_at", sa.Float),
        sa.Column("sso", sa.Text),
    )
    op.add_column("tokens", sa.Column("label", sa.Text))
    op.add_column("tokens", sa.Column("used_at", sa.Float))
    op.add_column("datastores", sa.Column("owner", sa.String(64)))
    op.add_column("secrets", sa.Column("owner", sa.String(64)))
    op.add_column("secrets", sa.Column("shared", sa.Boolean))
    # Those that everybody could use so far stay so.
    op.execute(sa.update(sa.table("secrets", sa.column("shared"))).values(shared=sa.true()))
    # Tokens of people who had no name yet open nothing any more, but for the owner's, which is in the folder.
    tokens = sa.table("tokens", sa.column("role"))
    op.execute(sa.delete(tokens).where(tokens.c.role.in_(("user", "reader"))))
    _audit()


def _audit() -> None:
    row_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "audit",
        sa.Column("id", row_id, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("audit_who", "audit", ["who", "id"])
    for statement in AUDIT_STAYS[op.get_bind().dialect.name]:
        op.execute(statement)
