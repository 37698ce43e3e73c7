"""Exports telemetry of runs to a collector from a child process, so that a slow collector delays nobody."""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from muster.host.children import Child, ChildEnded
from muster.server.context import Context
from muster.server.database.records import active_run_count
from muster.wire.codec import from_json, to_json
from muster.wire.notifications.telemetry import TelemetryLook, TelemetryOrder, TelemetryReport

log = logging.getLogger("muster.server")

_LOOK_S, _AGAIN_S = 1.0, 5.0
_TRIED_S = 600.0
"""How long after the last change an unreachable collector is retried; the next server sends the rest."""
_COMMAND = (sys.executable, "-P", "-m", "muster.telemetry")


async def export_telemetry(context: Context) -> None:
    """The loop: tell the child when there may be something new."""
    if context.telemetry is None:
        return
    while True:
        try:
            await _keep_looking(context)
        except Exception:
            log.exception("no telemetry was exported; it is tried again")
        await asyncio.sleep(_AGAIN_S)


async def _keep_looking(context: Context) -> None:
    """Run one child process until it ends."""
    child = await asyncio.to_thread(_start, context)
    seen, changed_at, trouble = -1, time.monotonic(), ""
    report = TelemetryReport(False)
    try:
        while True:
            commits, now = context.database.writer.commits, time.monotonic()
            is_active = await context.database.read(active_run_count) > 0
            if commits != seen or is_active:
                seen, changed_at = commits, now
            if changed_at == now or (report.is_behind and now - changed_at < _TRIED_S):
                report = await asyncio.to_thread(_look, child)
                if report.trouble != trouble:
                    trouble = report.trouble
                    log.warning("%s", trouble or "telemetry is exported again")
            await asyncio.sleep(_AGAIN_S if report.is_behind else _LOOK_S)
    except ChildEnded:
        log.warning("the process that exports telemetry has ended: %s", " ".join(child.last_words()))
    finally:
        child.end()


def _start(context: Context) -> Child:
    settings = context.telemetry
    assert settings is not None
    child = Child(_COMMAND, keep_lines=5)
    order = TelemetryOrder(
        server=context.nodes.addresses[0],
        workspace=context.workspace_id,
        position=str(context.paths.telemetry),
        endpoint=settings.endpoint,
        headers=dict(settings.headers),
        token=context.paths.admin_token.read_text().strip(),
    )
    child.send(to_json(order))
    return child


def _look(child: Child) -> TelemetryReport:
    """In a thread, which ends with the child."""
    child.send(to_json(TelemetryLook(time.time())))
    return from_json(TelemetryReport, child.receive())
