"""Tunnels: requested by a person, dialled by an agent, joined here."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from muster import errors
from muster.control.access import Action
from muster.host.tunnels import PROTOCOL
from muster.server.http.dependencies import CallerOf, ContextOf, NodeOf
from muster.server.http.listening import taken_over
from muster.server.http.needs import EnterRun, needs
from muster.server.tunnels import lookup
from muster.server.tunnels.relay import End, switch
from muster.wire.node.tunnels import TunnelRefusal
from muster.wire.tunnels import NewTunnel, TunnelView

router = APIRouter(tags=["tunnels"])

Make = Callable[[Callable[[], None]], End]


@router.post("/runs/{ref}/tunnels", status_code=201)
async def open_tunnel(run: EnterRun, body: NewTunnel, context: ContextOf, caller: CallerOf) -> TunnelView:
    """Open a tunnel to a run's node: its agent is asked to dial, and the caller continues with `POST tunnels/ID`."""
    running = await context.database.read(lambda connection: lookup.load(connection, run))
    node_rank = lookup.chosen_node(running, body)
    node = running.nodes[node_rank].name
    tunnel = context.tunnels.open(run, running.attempt, node, body.target, caller)
    context.hub.changed(nodes=[node])
    return TunnelView(tunnel.order.id, run, running.attempt, node, node_rank, running.num_nodes)


@router.post("/tunnels/{tunnel_id}", status_code=101, dependencies=[needs(Action.ENTER_RUN, asks_owner=True)])
async def enter(tunnel_id: str, request: Request, context: ContextOf, caller: CallerOf) -> Response:
    """The person's end, by an upgrade to `muster-tunnel`: answered once the node's end is there."""
    _wants_upgrade(request)
    tunnel = await context.tunnels.node_end(tunnel_id, caller)
    return Upgraded(lambda make: context.tunnels.join(tunnel, make))


@router.post("/agents/{node}/tunnels/{tunnel_id}", status_code=101)
async def enter_from_node(tunnel_id: str, request: Request, context: ContextOf, node: NodeOf) -> Response:
    """The node's end, by an upgrade to `muster-tunnel`."""
    _wants_upgrade(request)
    return Upgraded(lambda make: context.tunnels.from_node(tunnel_id, node, make))


@router.post("/agents/{node}/tunnels/{tunnel_id}/refusal", status_code=204)
async def refuse(tunnel_id: str, body: TunnelRefusal, context: ContextOf, node: NodeOf) -> Response:
    """Record why the node cannot open its end."""
    context.tunnels.refuse(tunnel_id, node, body.message, body.hint)
    return Response(status_code=204)


class Upgraded(Response):
    """In place of a response: the connection itself becomes one end of a tunnel."""

    def __init__(self, use: Callable[[Make], None]) -> None:
        super().__init__(status_code=101)
        self._use = use

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        def make(ended: Callable[[], None]) -> End:
            transport = taken_over(scope)
            switch(transport, PROTOCOL)
            return End(transport, ended)

        self._use(make)


def _wants_upgrade(request: Request) -> None:
    if request.headers.get("upgrade", "").lower() != PROTOCOL:
        raise errors.JobError(
            "a tunnel's end comes by an upgrade of the connection",
            f"Send the headers `Connection: Upgrade` and `Upgrade: {PROTOCOL}`.",
        )
