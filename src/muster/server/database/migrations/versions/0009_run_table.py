"""Runs as a table: indexes to filter by, and parameters as numbers to sort by."""

import math

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0007"

_BATCH = 10_000


def upgrade() -> None:
    op.create_index("runs_experiment", "runs", ["experiment", "seq"])
    op.create_index("runs_person", "runs", ["submitted_by", "seq"])
    op.create_index("runs_status", "runs", ["status", "seq"])
    op.create_index("params_name", "params", ["name", "run_id"])
    op.add_column("params", sa.Column("number", sa.Float))
    _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    """Numbers of the parameters that are kept already."""
    params = sa.table("params", *(sa.column(name) for name in ("run_id", "name", "value", "number")))
    rows = connection.execute(sa.select(params.c.run_id, params.c.name, params.c.value)).all()
    found = [
        {"in_run": run_id, "called": name, "is_number": number}
        for run_id, name, value in rows
        if (number := _number(value)) is not None
    ]
    same = sa.and_(params.c.run_id == sa.bindparam("in_run"), params.c.name == sa.bindparam("called"))
    change = sa.update(params).where(same).values(number=sa.bindparam("is_number"))
    for begin in range(0, len(found), _BATCH):
        connection.execute(change, found[begin : begin + _BATCH])


def _number(text: str) -> float | None:
    try:
        found = float(text) if len(text) <= 40 else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None
