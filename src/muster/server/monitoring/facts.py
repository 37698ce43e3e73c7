"""Current facts for monitoring: runs, the queue, nodes, and active runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from muster.server.database import tables
from muster.server.runs.views import load_progress
from muster.server.tracking.listing import load_run_metrics
from muster.wire import states
from muster.wire.runs import Progress, slowest

MOST_RUNS = 500
"""Only so many of the newest active runs have figures of their own: many thousand series would do harm."""
MOST_METRICS = 100
"""Of one run."""


@dataclass(frozen=True)
class ActiveRun:
    """A run that has nodes."""

    id: str
    name: str
    experiment: str
    cluster: str
    person: str
    started_at: float | None
    progress: Progress | None
    metrics: Mapping[str, float]
    """The last value of each that is a number."""


@dataclass(frozen=True)
class Facts:
    """All that is exposed."""

    runs: Mapping[str, int]
    """By state."""
    queued: Mapping[str, int]
    """By cluster."""
    waiting_since: Mapping[str, float]
    """Since when the longest-waiting run has waited, by cluster."""
    nodes: Mapping[tuple[str, str], int]
    """By cluster and state."""
    active: Sequence[ActiveRun]


def load(connection: Connection) -> Facts:
    """Read all of it in one transaction."""
    runs, nodes = tables.runs, tables.node_states
    by_state = connection.execute(select(runs.c.status, func.count()).group_by(runs.c.status))
    queued = select(runs.c.compute, func.count(), func.min(runs.c.queued_at)).where(runs.c.status == states.QUEUED)
    waiting = connection.execute(queued.group_by(runs.c.compute)).all()
    counted = connection.execute(
        select(nodes.c.cluster, nodes.c.state, func.count()).group_by(*nodes.c["cluster", "state"])
    )
    counts = dict.fromkeys(states.ALL, 0) | {str(status): int(count) for status, count in by_state}
    return Facts(
        runs=counts,
        queued={str(cluster): int(count) for cluster, count, _ in waiting},
        waiting_since={str(cluster): float(since) for cluster, _, since in waiting if since is not None},
        nodes={(str(cluster), str(state)): int(count) for cluster, state, count in counted},
        active=_active(connection),
    )


def _active(connection: Connection) -> list[ActiveRun]:
    runs = tables.runs
    query = select(runs).where(runs.c.status.in_(sorted(states.ACTIVE))).order_by(runs.c.seq.desc()).limit(MOST_RUNS)
    rows = connection.execute(query).all()
    ids = [row.id for row in rows]
    metrics, progress = load_run_metrics(connection, ids), load_progress(connection, ids) if ids else {}
    return [
        ActiveRun(
            row.id,
            row.name or row.display_name or row.id,
            row.experiment,
            row.compute,
            row.submitted_by or "",
            row.started_at,
            slowest(progress.get(row.id, ())),
            {
                name: float(metric.last)
                for name, metric in sorted(metrics.get(row.id, {}).items())[:MOST_METRICS]
                if isinstance(metric.last, int | float) and not isinstance(metric.last, bool)
            },
        )
        for row in rows
    ]
