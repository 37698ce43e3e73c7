"""Where a model comes from: its run, with the code, data and environment that it used, and its metrics."""

from __future__ import annotations

from sqlalchemy import Connection, select

from muster.server.database import tables
from muster.server.environments import records
from muster.server.tracking.labels import load_params
from muster.server.tracking.reading import last_values
from muster.wire.models import ModelLineage, ModelView


def lineage_of(connection: Connection, model: ModelView) -> ModelLineage:
    """What is known of the run that made a model; only its name once the run was removed."""
    if model.run_id is None:
        return ModelLineage()
    run = connection.execute(select(tables.runs).where(tables.runs.c.id == model.run_id)).first()
    if run is None:
        return ModelLineage(model.run_id)
    command = run.spec.get("command")
    brief = records.brief(run.environment)
    return ModelLineage(
        run.id,
        run.experiment,
        run.submitted_by,
        command if isinstance(command, str) else " ".join(command or ()),
        run.snapshot,
        brief.name if brief is not None else None,
        run.spec.get("inputs") or {},
        load_params(connection, [run.id]).get(run.id, {}),
        last_values(connection, [run.id]).get(run.id, {}),
    )
