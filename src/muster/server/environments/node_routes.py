"""Agents' reports on the environments that they were asked to build, and the compiled wheels that they share."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from muster import errors
from muster.host import clock
from muster.server.environments import building, packed, wheels
from muster.server.http.dependencies import ContextOf, NodeOf
from muster.server.http.uploads import body_pieces, in_thread
from muster.store.pieces import pieces_of
from muster.wire.node.builds import (
    BuildHeard,
    BuildReport,
    CompiledWheel,
    EnvironmentClaim,
    EnvironmentReleased,
    PackedEnvironment,
    WheelClaim,
    WheelReleased,
)

router = APIRouter(prefix="/agents/{node}", tags=["agents"])


@router.post("/builds")
async def report(node: NodeOf, body: BuildReport, context: ContextOf) -> BuildHeard:
    """An environment is ready, or cannot be built."""
    wanted = await context.database.write(lambda t: building.take_report(context, t, node, body))
    return BuildHeard(wanted)


@router.post("/wheels/{key}")
async def claim_wheel(node: NodeOf, key: str, context: ContextOf) -> WheelClaim:
    """A node needs a compiled wheel: it downloads it, compiles it for all, or waits for the node that does."""
    found = await in_thread(lambda: wheels.about(context.files.store, key))
    alive = [(name, contact.agent) for name, contact in context.hub.contacts.items()]
    agent = dict(alive).get(node, "")
    compiles = found is None and context.runs.builds.claims.take(key, node, agent, alive, clock.now())
    return wheels.answer(found, compiles)


@router.get("/wheels/{key}")
async def get_wheel(node: NodeOf, key: str, context: ContextOf) -> StreamingResponse:
    """The wheel's file."""
    name = f"{wheels.location(key)}/wheel"
    if not await in_thread(lambda: context.files.store.exists(name)):
        raise errors.NotFound(f"there is no wheel {key}")
    file = await in_thread(lambda: context.files.store.open(name))

    def pieces() -> Iterator[bytes]:
        with file:
            yield from pieces_of(file)

    return StreamingResponse(pieces(), media_type="application/octet-stream")


@router.put("/wheels/{key}", status_code=201)
async def put_wheel(
    node: NodeOf, key: str, name: str, size: int, sha256: str, request: Request, context: ContextOf
) -> CompiledWheel:
    """A node has compiled one."""
    wheel = CompiledWheel(name, size, sha256)
    await body_pieces(request, lambda pieces: wheels.keep(context.files.store, key, wheel, pieces))
    context.runs.builds.claims.release(key, node)
    return wheel


@router.delete("/wheels/{key}")
async def release_wheel(node: NodeOf, key: str, context: ContextOf) -> WheelReleased:
    """A node gives up compiling it."""
    context.runs.builds.claims.release(key, node)
    return WheelReleased(key)


@router.post("/environments/{key}")
async def claim_environment(node: NodeOf, key: str, context: ContextOf) -> EnvironmentClaim:
    """A node needs an environment: it downloads it, builds it for all, or waits for the node that does."""
    return packed.claim(context, node, key)


@router.put("/environments/{key}")
async def keep_environment(node: NodeOf, key: str, body: PackedEnvironment, context: ContextOf) -> EnvironmentReleased:
    """A node has built one, and serves it to others."""
    packed.keep(context, node, key, body)
    return EnvironmentReleased(key)


@router.delete("/environments/{key}")
async def release_environment(node: NodeOf, key: str, context: ContextOf) -> EnvironmentReleased:
    """A node gives up building one."""
    packed.release(context, node, key)
    return EnvironmentReleased(key)
