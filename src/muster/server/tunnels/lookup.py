"""Finds the node of a run that a tunnel leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, and_, select

from muster import errors
from muster.server.database import tables
from muster.server.database.records import find_run
from muster.wire import states
from muster.wire.codec import from_json
from muster.wire.node.plan import NodePlan
from muster.wire.tunnels import NOT_STARTED_YET, NewTunnel

_STILL_TO_COME = (states.NOT_STARTED, states.QUEUED, states.PROVISIONING, states.PREPARING)


@dataclass(frozen=True)
class RunningNode:
    """One node on which ranks of the run have been started."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Running:
    """A run that somebody wants to enter."""

    run: str
    status: str
    attempt: int
    num_nodes: int
    nodes: Mapping[int, RunningNode]
    """By node rank."""


def load(connection: Connection, ref: str) -> Running:
    """A run with the nodes on which its last attempt is running."""
    run = find_run(connection, ref)
    attempts, placements = tables.attempts, tables.placements
    rows = connection.execute(
        select(*placements.c["number", "node", "node_rank"], attempts.c.plan)
        .join(attempts, and_(attempts.c.run_id == placements.c.run_id, attempts.c.number == placements.c.number))
        .where(placements.c.run_id == run.id, placements.c.phase == states.STARTED)
        .order_by(placements.c.number)
    ).all()
    attempt = rows[-1].number if rows else 0
    nodes = {
        row.node_rank: RunningNode(row.node, _ranks(row.plan["nodes"][row.node_rank]))
        for row in rows
        if row.number == attempt and row.plan
    }
    return Running(run.id, run.status, attempt, run.num_nodes, nodes)


def chosen_node(running: Running, wanted: NewTunnel) -> int:
    """The rank of the requested node; raises an error for people. Pure."""
    run = running.run
    if not running.nodes:
        if running.status in _STILL_TO_COME:
            raise errors.Conflict(
                f"run {run} is {running.status}: none of its ranks has started yet",
                f"`muster logs -f {run}` waits for it.",
                code=NOT_STARTED_YET,
            )
        raise errors.Conflict(
            f"run {run} is {running.status}: none of its ranks runs",
            f"Only a running one can be entered; `muster logs {run}` shows what it printed.",
        )
    if wanted.node_rank is not None:
        if wanted.node_rank not in running.nodes:
            raise errors.NotFound(
                f"run {run} does not run on a node {wanted.node_rank}", f"Its nodes are {_listed(running.nodes)}."
            )
        return wanted.node_rank
    ranks = sorted(rank for node in running.nodes.values() for rank in node.ranks)
    rank = wanted.target.rank if wanted.target.rank is not None else ranks[0]
    for node_rank, node in running.nodes.items():
        if rank in node.ranks:
            return node_rank
    raise errors.NotFound(f"run {run} has no rank {rank}", f"Its ranks are {ranks[0]} to {ranks[-1]}.")


def _ranks(plan: object) -> tuple[int, ...]:
    return tuple(rank.rank for rank in from_json(NodePlan, plan).ranks)


def _listed(numbers: Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(numbers)))
