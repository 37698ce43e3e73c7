"""Events are numbered once: SQLite gave the numbers of a removed run's last events to the next ones."""

from alembic import op

revision = "0018"
down_revision = "0014"


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return
    with op.batch_alter_table("events", recreate="always", table_kwargs={"sqlite_autoincrement": True}):
        # Only the way in which its rows are numbered changes.
        pass
