"""What came after the first schema; changed freely until the next release."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    _storage()
    _queues()
    _readiness()
    _environments()
    _outputs()
    _progress()


def _readiness() -> None:
    """What a node reported of itself when it had prepared an attempt."""
    op.add_column("placements", sa.Column("facts", sa.JSON))


def _queues() -> None:
    """Attempts that wait in somebody else's queue: when they got their nodes, and how they lost them."""
    op.add_column("attempts", sa.Column("granted_at", sa.Float))
    op.add_column("attempts", sa.Column("ending", sa.JSON))


def _storage() -> None:
    """Datastores with credentials, data assets, grants, secrets."""
    op.add_column("datastores", sa.Column("sealed", sa.Text))
    op.add_column("datastores", sa.Column("description", sa.Text))
    op.add_column("snapshots", sa.Column("used_at", sa.Float))
    op.create_table(
        "assets",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("version", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("num_files", sa.Integer, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64)),
        sa.Column("description", sa.Text),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("run_id", sa.String(255)),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "asset_files",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("version", sa.String(64), primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64)),
        sa.Column("etag", sa.Text),
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("store", sa.String(255), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("revoked_at", sa.Float),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Float, nullable=False),
        sa.Column("updated_by", sa.Text),
    )


def _environments() -> None:
    """What a run's environment is made of, and registered ones."""
    op.add_column("runs", sa.Column("environment", sa.JSON))
    op.create_table(
        "environments",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )


def _outputs() -> None:
    """Names of files that several nodes brought to one output."""
    op.create_table(
        "output_files",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("output", sa.String(255), primary_key=True),
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("node_rank", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
    )


def _progress() -> None:
    """How far each rank of a run is; it was one value for all of them."""
    progress = op.create_table(
        "progress",
        sa.Column("run_id", sa.String(255), primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("done", sa.Float, nullable=False),
        sa.Column("total", sa.Float),
        sa.Column("unit", sa.Text, nullable=False),
    )
    runs = sa.table("runs", sa.column("id"), sa.column("attempt"), sa.column("progress", sa.JSON))
    for run_id, attempt, last in op.get_bind().execute(sa.select(runs)).all():
        if last and isinstance(last.get("done"), int | float):
            row = {
                "run_id": run_id,
                "rank": 0,
                "attempt": attempt,
                "done": last["done"],
                "unit": last.get("unit") or "",
            }
            op.get_bind().execute(sa.insert(progress), row)
    op.drop_column("runs", "progress")
