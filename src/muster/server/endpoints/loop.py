"""Moves the runs of endpoints on: the thin half of `control.endpoints`."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from sqlalchemy import Connection, select

from muster.control import endpoints as control
from muster.server.context import Context
from muster.server.database import tables
from muster.server.endpoints import canary, deploying, records
from muster.wire.codec import from_json
from muster.wire.serving.endpoints import NewDeployment

log = logging.getLogger("muster.server")

_LOOK_S = 0.5
_IDLE_S = 5.0


async def keep_endpoints(context: Context) -> None:
    """Look at endpoints when something about them changes, and from time to time."""
    while True:
        try:
            busy = await context.database.read(partial(_with_steps, context))
            for endpoint in busy:
                await context.database.write(partial(deploying.advance, context, endpoint=endpoint))
            failing, has_trial = await context.database.read(partial(_on_trial, context))
            for endpoint in failing:
                await context.database.write(partial(canary.step_back, context, endpoint=endpoint))
            moving = has_trial or await context.database.read(_is_moving)
        except Exception:
            log.exception("looking after the endpoints failed; it is tried again")
            moving = False
        await _sleep(context, _LOOK_S if moving else _IDLE_S)


async def _sleep(context: Context, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await context.endpoints.changed.wait()
    except TimeoutError:
        pass
    context.endpoints.changed.clear()
    # Many reports at the same time cause one look.
    await asyncio.sleep(0.05)


def _with_steps(context: Context, connection: Connection) -> list[str]:
    """Endpoints whose runs need a step."""
    found = []
    for row in connection.execute(select(tables.endpoints)).all():
        known = records.deployments(connection, row.name)
        wanted = {
            name: control.Wanted(item.revision, from_json(NewDeployment, item.spec).instances)
            for name, item in known.items()
        }
        if control.next_steps(deploying.members(context, row, records.open_runs(connection, row.name)), wanted):
            found.append(str(row.name))
    return found


def _on_trial(context: Context, connection: Connection) -> tuple[list[str], bool]:
    """Endpoints whose deployment on trial does worse than the others, and whether any is on trial."""
    rows = canary.watched(connection)
    return [str(row.name) for row in rows if canary.why_back(context, connection, row)], bool(rows)


def _is_moving(connection: Connection) -> bool:
    """Whether a run of an endpoint is starting or ending."""
    return any(run.state != control.SERVING for run in records.open_runs(connection))
