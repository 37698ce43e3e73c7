"""Batch endpoints as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.cli.text import moment, number
from muster.cli.views.columns import Column, fit
from muster.wire.serving.batch import BatchDeploymentView, BatchEndpointView


def listing(endpoints: Sequence[BatchEndpointView], now: float, room: int | None) -> list[str]:
    """A line for each batch endpoint."""
    columns = [
        Column("BATCH ENDPOINT", 14), Column("DEFAULT", 8), Column("DEPLOYMENTS", leaves=2), Column("MODEL", leaves=1),
        Column("CHANGED", leaves=3),
    ]  # fmt: skip
    rows = []
    for view in endpoints:
        chosen = next((item for item in view.deployments if item.is_default), None)
        model = (chosen.model if chosen is not None else None) or "-"
        rows.append(
            [
                view.name,
                view.default_deployment or "-",
                str(len(view.deployments)),
                model,
                moment(view.updated_at, now),
            ]
        )
    return fit(columns, rows, room)


def description(view: BatchEndpointView, now: float, room: int | None = None) -> Iterator[str]:
    """All details of one batch endpoint."""
    fields = {
        "endpoint": view.name,
        "default": view.default_deployment or "none yet",
        "description": view.description or "",
        "tags": ", ".join(f"{key}={value}" for key, value in sorted(view.tags.items())),
        "made": moment(view.created_at, now) + (f" by {view.created_by}" if view.created_by else ""),
    }
    yield from (f"{name + ':':<13}{text}" for name, text in fields.items() if text)
    yield ""
    if not view.deployments:
        yield f"nothing is deployed: `muster batch-endpoint deploy -f FILE --endpoint {view.name}`"
        return
    columns = [
        Column("DEPLOYMENT", 12), Column("MODEL", 8), Column("SCRIPT", 8), Column("NODES"), Column("PROCS"),
        Column("MINI-BATCH", leaves=1), Column("RETRIES", leaves=4), Column("TIMEOUT", leaves=5),
        Column("OUTPUT", 10, leaves=3), Column("COMPUTE", leaves=2),
    ]  # fmt: skip
    yield from fit(columns, [_deployment(item) for item in view.deployments], room)
    yield ""
    yield f"its runs: `muster batch-endpoint runs {view.name}`"


def _deployment(item: BatchDeploymentView) -> Sequence[str]:
    settings = item.settings
    output = settings.output_file if settings.output_action == "append_row" else settings.output_action
    return (
        f"{item.name}{' (default)' if item.is_default else ''}",
        item.model or "-",
        settings.script or "-",
        str(item.nodes),
        str(item.procs),
        str(settings.mini_batch_size or "-"),
        str(settings.max_retries),
        f"{number(settings.timeout_s)} s",
        output,
        item.compute,
    )
