"""Clusters: create, show, resize, stop, start, delete; their nodes; what they cost."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from muster import errors
from muster.control.access import Action
from muster.engines.base import Cluster
from muster.host import clock
from muster.server.database.connection import Transaction
from muster.server.http.dependencies import CallerOf, ContextOf
from muster.server.http.needs import needs
from muster.server.http.paging import PageOf
from muster.server.nodes import cluster_changes, cluster_check, clusters, costs, utilisation
from muster.server.people import audit
from muster.wire.clusters import (
    ChangedCluster,
    ClusterChanges,
    ClusterCheck,
    ClusterUse,
    ClusterView,
    CostBy,
    CostReport,
    DeleteMode,
    NewCluster,
    NodeChanges,
    NodeStateView,
    SetupLog,
)

router = APIRouter(tags=["clusters"])


@router.get("/clusters", dependencies=[needs(Action.READ)])
async def list_clusters(context: ContextOf, page: PageOf) -> list[ClusterView]:
    """Compute targets with their nodes."""
    found = await context.database.read(lambda c: cluster_changes.list_views(context, c))
    return page.of(found, lambda item: (item.name,))


@router.post("/clusters", status_code=201, dependencies=[needs(Action.MANAGE_CLUSTER)])
async def create_cluster(body: NewCluster, context: ContextOf) -> ChangedCluster:
    """Create a compute target."""
    audit.about(body.name, "create")
    notices = await asyncio.to_thread(cluster_changes.check, context, Cluster(body.name, body.engine, body.options))
    await context.database.write(lambda transaction: cluster_changes.create(transaction, body))
    notices += await _listen_for(context)
    context.hub.clusters.set()
    return _changed(await show_cluster(body.name, context), notices)


@router.get("/clusters/{name}", dependencies=[needs(Action.READ)])
async def show_cluster(name: str, context: ContextOf) -> ClusterView:
    """One compute target."""
    return await context.database.read(lambda c: cluster_changes.view(context, c, name))


@router.post("/clusters/{name}/check", dependencies=[needs(Action.SUBMIT)])
async def check_cluster(name: str, context: ContextOf) -> ClusterCheck:
    """Walk the way to a cluster as far as the server can: its manager, settings, nodes, the way back, disk."""
    row = await context.database.read(lambda c: clusters.find(c, name))
    return await cluster_check.check(context, clusters.cluster_of(row))


@router.get("/clusters/{name}/use", dependencies=[needs(Action.READ)])
async def cluster_use(
    name: str,
    context: ContextOf,
    hours: Annotated[float, Query(gt=0, le=24 * 366)] = 24.0,
    points: Annotated[int, Query(ge=1, le=1000)] = 96,
) -> ClusterUse:
    """How much of it was in use over the last hours: nodes, busy nodes, GPUs, runs that waited."""
    return await context.database.read(lambda c: utilisation.use_of(c, name, hours, points, clock.now()))


@router.patch("/clusters/{name}", dependencies=[needs(Action.MANAGE_CLUSTER)])
async def change_cluster(name: str, body: ClusterChanges, context: ContextOf) -> ChangedCluster:
    """Change settings, resize, stop or start a cluster; nodes that go finish their runs first, unless `now`."""
    wanted = await context.database.read(lambda c: cluster_changes.changed(c, name, body))
    notices = await asyncio.to_thread(cluster_changes.check, context, wanted) if body.options else []
    await context.database.write(lambda transaction: cluster_changes.change(context, transaction, name, body))
    notices += await _listen_for(context)
    context.hub.changed(queue=True)
    return _changed(await show_cluster(name, context), notices)


@router.delete("/clusters/{name}", status_code=204, dependencies=[needs(Action.MANAGE_CLUSTER)])
async def delete_cluster(name: str, context: ContextOf, caller: CallerOf, mode: DeleteMode = "refuse") -> Response:
    """Delete a compute target: not while runs use it, once they have ended (`drain`), or with them (`now`)."""
    audit.about(name, f"delete, {mode}")
    await context.database.write(lambda transaction: cluster_changes.remove(context, transaction, name, mode, caller))
    context.hub.changed(queue=True)
    return Response(status_code=204)


@router.patch("/clusters/{name}/nodes/{node}", dependencies=[needs(Action.MANAGE_CLUSTER)])
async def change_node(name: str, node: str, body: NodeChanges, context: ContextOf) -> ClusterView:
    """Cordon a node, so that nothing new starts there, or take it back."""

    def work(transaction: Transaction) -> None:
        clusters.find(transaction, name)
        clusters.cordon(transaction, name, [node], body.reason if body.cordoned else None)

    await context.database.write(work)
    context.hub.changed(queue=True)
    return await show_cluster(name, context)


@router.get("/clusters/{name}/nodes/{node}/history", dependencies=[needs(Action.READ)])
async def node_history(name: str, node: str, context: ContextOf, page: PageOf) -> list[NodeStateView]:
    """The states of a node so far, oldest first."""
    states = await context.database.read(lambda c: cluster_changes.history(c, name, node))
    # States are never removed, so a state keeps its number.
    numbered = page.of(list(enumerate(states)), lambda item: (item[0],))
    return [state for _, state in numbered]


@router.get("/clusters/{name}/nodes/{node}/setup", dependencies=[needs(Action.READ)])
async def setup_log(name: str, node: str, context: ContextOf) -> SetupLog:
    """What a node's set-up command printed."""
    location = f"clusters/{name}/{node}/setup.log"
    if not context.files.store.exists(location):
        raise errors.NotFound(f"{node} of {name} has run no set-up command")
    with context.files.store.open(location) as file:
        return SetupLog(file.read().decode(errors="replace"))


@router.get("/cost", dependencies=[needs(Action.READ)])
async def cost(context: ContextOf, by: CostBy = "run") -> CostReport:
    """Node hours and, where prices are known, their cost."""
    return await context.database.read(lambda c: costs.report(c, by, clock.now()))


async def _listen_for(context: ContextOf) -> list[str]:
    """Listen for nodes on other machines as their clusters want it now."""
    return await context.remote.open() if context.remote.open is not None else []


def _changed(view: ClusterView, notices: list[str]) -> ChangedCluster:
    return ChangedCluster(**vars(view), notices=tuple(notices))
