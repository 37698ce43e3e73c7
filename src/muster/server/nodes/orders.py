"""The orders of a node's agent: loaded from the database, then decided purely."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, or_, select

from muster import errors
from muster.clusters.options import parse_options
from muster.control.isolation import SANDBOX
from muster.job.expressions import resolve_environment, secret_names
from muster.job.parts import Mpi
from muster.job.spec import JobSpec
from muster.launch.conventions import ports_wanted
from muster.launch.preflight import needs
from muster.server.context import Context
from muster.server.data import grants
from muster.server.database import tables
from muster.server.environments import records
from muster.server.nodes import allocations
from muster.server.people import run_tokens, secrets
from muster.server.runs import checkpoints
from muster.wire import states
from muster.wire.codec import from_json
from muster.wire.node.agents import AttemptKey, InputOrder, Order, OutputOrder
from muster.wire.node.containers import Confinement, Container
from muster.wire.node.plan import NodePlan
from muster.wire.node.recipes import Recipe

_RESUME_FROM = 3


def _open_here() -> Select[Any]:
    runs, attempts, placements = tables.runs, tables.attempts, tables.placements
    return (
        select(
            *placements.c["run_id", "number", "node_rank", "phase", "gpus"],
            *runs.c["spec", "snapshot", "python", "environment", "num_nodes", "budget_from", "submitted_by"],
            *attempts.c["stop_reason", "stop_grace_s", "plan"],
            tables.clusters.c.engine,
            tables.clusters.c.options.label("cluster_options"),
        )
        .join(attempts, and_(attempts.c.run_id == placements.c.run_id, attempts.c.number == placements.c.number))
        .join(runs, runs.c.id == placements.c.run_id)
        .outerjoin(tables.clusters, tables.clusters.c.name == placements.c.cluster)
        .where(
            placements.c.node == bindparam("node"),
            or_(
                placements.c.phase.in_((*states.HOLDS_RESOURCES, states.GIVEN_UP)),
                and_(placements.c.phase == states.ENDED, runs.c.cancel == "abandon"),
            ),
        )
    )


_OPEN_HERE = _open_here()
_STILL_OPEN = select(tables.placements.c.run_id, tables.placements.c.number).where(
    tables.placements.c.node == bindparam("node"),
    tables.placements.c.run_id.in_(bindparam("runs", expanding=True)),
    tables.placements.c.phase != states.CLOSED,
)


@dataclass(frozen=True)
class Standing:
    """Where an attempt stands on a node. One that has ended there gets an order only if its delivery is cancelled."""

    run: str
    attempt: int
    node_rank: int
    num_nodes: int
    phase: str
    stop_reason: str | None = None
    stop_grace_s: float | None = None


@dataclass(frozen=True)
class Material:
    """What a node needs for an attempt that is to run there."""

    spec: JobSpec
    snapshot: str | None = None
    python: str | None = None
    gpus: Sequence[str] = ()
    environment: Recipe | None = None
    container: Container | None = None
    inputs: tuple[InputOrder, ...] = ()
    outputs: tuple[OutputOrder, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Values by name, put into the environment and masked in what ranks print."""
    plan: NodePlan | None = None
    plan_secret: str = ""
    run_token: str = ""
    confinement: Confinement | None = None
    """The identity of its ranks where the job runs in a sandbox."""
    timeout_s: float | None = None
    used_ports: tuple[int, ...] = ()
    """Of earlier attempts."""
    resume: tuple[int, ...] = ()
    mounts: tuple[str, ...] = ()
    shared: bool = False
    """Nodes fetch what they need from each other."""
    own_cache: bool = False


def stop_order(standing: Standing) -> Order | None:
    """The order that ends an attempt on a node; None where it is to go on. Pure."""
    given_up, abandoned = standing.phase == states.GIVEN_UP, standing.phase == states.ENDED
    if not standing.stop_reason and not given_up and not abandoned:
        return None
    reason = "superseded" if given_up else "abandoned" if abandoned else standing.stop_reason or ""
    return Order(
        standing.run,
        standing.attempt,
        "stop",
        node_rank=standing.node_rank,
        num_nodes=standing.num_nodes,
        grace_s=0.0 if given_up else standing.stop_grace_s or 0.0,
        stop_reason=reason,
    )


def run_order(standing: Standing, material: Material) -> Order:
    """The order that has a node prepare an attempt, or start its ranks once the gang's plan is made. Pure."""
    spec, plan, container = material.spec, material.plan, material.container
    is_ordered = standing.phase == states.ORDERED
    ports = ports_wanted(spec, standing.node_rank)
    return Order(
        standing.run,
        standing.attempt,
        "go" if plan and not is_ordered else "prepare",
        node_rank=standing.node_rank,
        num_nodes=standing.num_nodes,
        snapshot=material.snapshot,
        ports_count=ports.count,
        ports_preferred=ports.preferred,
        ports_avoid=material.used_ports,
        inputs=material.inputs,
        outputs=tuple(spec.outputs),
        output_orders=material.outputs,
        python=material.python,
        environment=material.environment,
        user_env=resolve_environment(spec, material.secrets),
        masked=(*material.secrets.values(), *(login.password for login in (container.logins if container else ()))),
        plan=plan,
        timeout_s=material.timeout_s,
        resume=material.resume,
        needs=needs(spec, standing.node_rank, material.gpus) if is_ordered else None,
        mpi=isinstance(spec.distribution, Mpi),
        shared=material.shared,
        own_cache=material.own_cache,
        run_token=material.run_token,
        secret=material.plan_secret,
        container=container,
        mounts=material.mounts,
        sandbox=material.confinement if container is None else None,
    )


def orders_for(context: Context, connection: Connection, node: str) -> tuple[Order, ...]:
    """The orders of a node: one for every attempt that is open there."""
    rows = connection.execute(_OPEN_HERE, {"node": node}).all()
    return tuple(_order(context, connection, row) for row in rows)


def forgettable(connection: Connection, node: str, holding: Collection[AttemptKey]) -> tuple[AttemptKey, ...]:
    """The attempts that are over, of those that a node holds: it may remove them."""
    if not holding:
        return ()
    rows = connection.execute(_STILL_OPEN, {"node": node, "runs": sorted({run for run, _ in holding})})
    wanted = {(row.run_id, row.number) for row in rows}
    return tuple(key for key in holding if key not in wanted)


def _order(context: Context, connection: Connection, row: Any) -> Order:
    standing = Standing(
        row.run_id, row.number, row.node_rank, row.num_nodes, row.phase, row.stop_reason, row.stop_grace_s
    )
    return stop_order(standing) or run_order(standing, _gather(context, connection, row))


def _gather(context: Context, connection: Connection, row: Any) -> Material:
    spec = JobSpec.model_validate(row.spec, strict=False)
    here, options = context.nodes.engines.on_this_machine(row.engine), parse_options(row.cluster_options or {})
    holder = grants.Holder(row.run_id, row.number, here, grants.mounted(row.cluster_options))
    shared = options.shares_data(holder.same_machine)
    inputs, hidden = grants.input_orders(context, connection, spec, holder, shared), {}
    if names := secret_names(spec):
        try:
            hidden = secrets.values(context, connection, names, row.submitted_by)
        except errors.MusterError as error:
            inputs = (*inputs, grants.refused_input("secrets", error))
    again = row.number > 1
    return Material(
        spec,
        snapshot=row.snapshot,
        python=row.python,
        gpus=row.gpus,
        environment=records.order_of(row.environment),
        container=records.container_of(context, connection, row.environment, spec, row.submitted_by),
        inputs=inputs,
        outputs=grants.output_orders(context, connection, spec, holder),
        secrets=hidden,
        plan=from_json(NodePlan, row.plan["nodes"][row.node_rank]) if row.plan else None,
        plan_secret=row.plan.get("secret", "") if row.plan else "",
        run_token=run_tokens.make(context, row.run_id, row.number),
        confinement=_confinement(context, spec, row.submitted_by, row.engine),
        timeout_s=allocations.time_left_s(connection, row.run_id, spec.limits.timeout, row.budget_from),
        used_ports=_used_ports(connection, row.run_id, row.number) if again else (),
        resume=_resume(connection, row.run_id, row.number) if again else (),
        mounts=tuple(mount.target for mount in options.mounts),
        shared=shared,
        own_cache=shared and holder.same_machine,
    )


def _confinement(context: Context, spec: JobSpec, submitted_by: str | None, engine: str) -> Confinement | None:
    if spec.isolation != SANDBOX:
        return None
    people, person = context.tokens.people, submitted_by or ""
    # On other machines the site decides which account may act for whom.
    is_root_here = os.getuid() == 0 and context.nodes.engines.on_this_machine(engine)
    return Confinement(f"{context.workspace_id}/{person}", people.unix_user(person) if is_root_here else "")


def _resume(connection: Connection, run_id: str, number: int) -> tuple[int, ...]:
    """Checkpoints to resume from, the newest first."""
    return tuple(item.id for item in checkpoints.resumable(connection, run_id, before=number)[:_RESUME_FROM])


def _used_ports(connection: Connection, run_id: str, number: int) -> tuple[int, ...]:
    placements = tables.placements
    rows = connection.execute(
        select(placements.c.ports).where(placements.c.run_id == run_id, placements.c.number < number)
    ).scalars()
    return tuple(sorted({port for ports in rows for port in ports}))
