"""What runs, users and clusters cost: node hours, and money where prices are known."""

from __future__ import annotations

from sqlalchemy import Connection, and_, select

from muster.control.cost import Use, cost_by
from muster.server.database import tables
from muster.wire.clusters import CostBy, CostReport


def report(connection: Connection, by: CostBy, now: float) -> CostReport:
    """One line per run, user or cluster, and the sum."""
    runs, attempts, placements = tables.runs, tables.attempts, tables.placements
    mine = and_(attempts.c.run_id == placements.c.run_id, attempts.c.number == placements.c.number)
    rows = connection.execute(
        select(
            *placements.c["run_id", "cluster", "gpus", "price_per_hour", "host"],
            *attempts.c["created_at", "granted_at", "ended_at"],
            *runs.c["display_name", "submitted_by", "gpu_share"],
        )
        .join(attempts, mine)
        .join(runs, runs.c.id == placements.c.run_id)
    )
    uses = [
        Use(
            key={"run": row.run_id, "user": row.submitted_by or "unknown", "cluster": row.cluster}[by],
            title=row.display_name or "",
            run_id=row.run_id,
            # A node that waited in an external queue held nothing there; one that never came has no host.
            hours=max(0.0, (row.ended_at or now) - (row.granted_at or row.created_at)) / 3600 if row.host else 0.0,
            num_gpus=len(row.gpus) * (row.gpu_share or 1.0),
            price_per_hour=row.price_per_hour,
        )
        for row in rows
    ]
    total = cost_by([use.as_total() for use in uses])
    return CostReport(by, "USD", tuple(cost_by(uses)), total[0] if total else None)
