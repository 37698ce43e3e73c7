"""What is wanted of a node's agent, derived from what is recorded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, select

from muster import errors
from muster.job.expressions import resolve_environment, secret_names
from muster.job.parts import Mpi
from muster.job.spec import JobSpec
from muster.launch.plan import ports_wanted
from muster.launch.preflight import needs
from muster.protocol import Order, order_to_json
from muster.server.context import Context
from muster.server.data import grants
from muster.server.database import tables
from muster.server.environments import records
from muster.server.nodes import allocations
from muster.server.people import secrets
from muster.server.runs import checkpoints
from muster.wire import states
from muster.wire.codec import to_json

_RESUME_FROM = 3


def _open_here() -> Select[Any]:
    runs, attempts, placements = tables.runs, tables.attempts, tables.placements
    return (
        select(
            placements.c.run_id,
            placements.c.number,
            placements.c.node_rank,
            placements.c.phase,
            placements.c.gpus,
            tables.clusters.c.engine,
            runs.c.spec,
            runs.c.snapshot,
            runs.c.python,
            runs.c.environment,
            runs.c.num_nodes,
            runs.c.budget_from,
            attempts.c.stop_reason,
            attempts.c.stop_grace_s,
            attempts.c.plan,
        )
        .join(attempts, and_(attempts.c.run_id == placements.c.run_id, attempts.c.number == placements.c.number))
        .join(runs, runs.c.id == placements.c.run_id)
        .outerjoin(tables.clusters, tables.clusters.c.name == placements.c.cluster)
        .where(
            placements.c.node == bindparam("node"), placements.c.phase.in_((*states.HOLDS_RESOURCES, states.GIVEN_UP))
        )
    )


_OPEN_HERE = _open_here()
_STILL_OPEN = select(tables.placements.c.run_id, tables.placements.c.number).where(
    tables.placements.c.node == bindparam("node"),
    tables.placements.c.run_id.in_(bindparam("runs", expanding=True)),
    tables.placements.c.phase != states.CLOSED,
)


def orders_for(context: Context, connection: Connection, node: str) -> list[dict[str, Any]]:
    """The orders of a node: one for every attempt that is not over there."""
    rows = connection.execute(_OPEN_HERE, {"node": node}).all()
    return [order_to_json(_order(context, connection, row)) for row in rows]


def forgettable(connection: Connection, node: str, holding: Collection[tuple[str, int]]) -> list[list[Any]]:
    """What a node holds of attempts that are over: it may remove them."""
    if not holding:
        return []
    rows = connection.execute(_STILL_OPEN, {"node": node, "runs": sorted({run for run, _ in holding})})
    wanted = {(row.run_id, row.number) for row in rows}
    return [[run, number] for run, number in holding if (run, number) not in wanted]


def _order(context: Context, connection: Connection, row: Any) -> Order:
    given_up = row.phase == states.GIVEN_UP
    if row.stop_reason or given_up:
        return Order(
            row.run_id,
            row.number,
            "stop",
            node_rank=row.node_rank,
            num_nodes=row.num_nodes,
            grace_s=0.0 if given_up else row.stop_grace_s or 0.0,
            stop_reason="superseded" if given_up else row.stop_reason,
        )
    spec = JobSpec.model_validate(row.spec, strict=False)
    holder = grants.Holder(row.run_id, row.number, context.engines.on_this_machine(row.engine))
    inputs, hidden = grants.input_orders(context, connection, spec, holder), {}
    if names := secret_names(spec):
        try:
            hidden = secrets.values(context, connection, names)
        except errors.MusterError as error:
            inputs = (*inputs, grants.refused_input("secrets", error))
    container = records.container_of(context, connection, row.environment, spec)
    wanted = ports_wanted(spec, row.node_rank)
    plan = row.plan["nodes"][row.node_rank] if row.plan else None
    return Order(
        row.run_id,
        row.number,
        "go" if plan and row.phase != states.ORDERED else "prepare",
        node_rank=row.node_rank,
        num_nodes=row.num_nodes,
        snapshot=row.snapshot,
        ports_count=wanted.count,
        ports_preferred=wanted.preferred,
        ports_avoid=_used_ports(connection, row.run_id, row.number) if row.number > 1 else (),
        inputs=inputs,
        outputs=tuple(spec.outputs),
        output_orders=grants.output_orders(context, connection, spec, holder),
        python=row.python,
        environment=to_json(records.order_of(row.environment)),
        user_env=resolve_environment(spec, hidden),
        masked=(*hidden.values(), *(login.password for login in (container.logins if container else ()))),
        plan=plan,
        timeout_s=allocations.time_left_s(connection, row.run_id, spec.limits.timeout, row.budget_from),
        resume=_resume(connection, row.run_id, row.number) if row.number > 1 else (),
        needs=asdict(needs(spec, row.node_rank, row.gpus)) if row.phase == states.ORDERED else None,
        mpi=isinstance(spec.distribution, Mpi),
        secret=row.plan.get("secret", "") if row.plan else "",
        container=to_json(container),
    )


def _resume(connection: Connection, run_id: str, number: int) -> tuple[int, ...]:
    """Checkpoints to resume from, the newest first."""
    return tuple(item.id for item in checkpoints.resumable(connection, run_id, before=number)[:_RESUME_FROM])


def _used_ports(connection: Connection, run_id: str, number: int) -> tuple[int, ...]:
    placements = tables.placements
    rows = connection.execute(
        select(placements.c.ports).where(placements.c.run_id == run_id, placements.c.number < number)
    ).scalars()
    return tuple(sorted({port for ports in rows for port in ports}))
