"""Parts of a deployment, each a run on a node of its own: what they must know about each other."""

from __future__ import annotations

from sqlalchemy import Connection, select

from muster.server.database import tables
from muster.wire import states

_PARTS, _PLACEMENTS = tables.endpoint_runs, tables.placements


def hosts_of_others(connection: Connection, run: str) -> list[str]:
    """The hosts of the other parts of a run's deployment; none for any other run."""
    mine = _PARTS.alias()
    same = [_PARTS.c[name] == mine.c[name] for name in ("endpoint", "deployment", "revision")]
    others = (
        select(_PLACEMENTS.c.host)
        .join(_PARTS, _PARTS.c.run_id == _PLACEMENTS.c.run_id)
        .join(mine, (mine.c.run_id == run) & (_PARTS.c.run_id != run) & same[0] & same[1] & same[2])
        .where(_PLACEMENTS.c.phase.in_(states.HOLDS_RESOURCES), _PLACEMENTS.c.host.is_not(None))
        .distinct()
    )
    return sorted(connection.execute(others).scalars())
