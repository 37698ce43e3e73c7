"""Endpoints as lines: lists and details. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.cli.text import counted, moment, number
from muster.cli.views.columns import Column, fit
from muster.host.fingerprints import fingerprint
from muster.wire.serving.canary import CanaryView
from muster.wire.serving.endpoints import DeploymentView, EndpointView, ServingFigures

_FIGURES = (
    Column("LAST MINUTE", 11), Column("REQS/S"), Column("P50"), Column("P95"), Column("P99"),
    Column("QUEUE P95", leaves=2), Column("BATCH", leaves=1), Column("REQUESTS"), Column("FAILED"),
)  # fmt: skip


def listing(endpoints: Sequence[EndpointView], now: float, room: int | None) -> list[str]:
    """A line for each endpoint."""
    columns = [
        Column("ENDPOINT", 12), Column("STATE"), Column("TRAFFIC", 8, leaves=2), Column("REQUESTS/S", leaves=3),
        Column("ADDRESS", 20, leaves=4), Column("MADE", leaves=1),
    ]  # fmt: skip
    rows = [
        [
            view.name,
            view.state,
            _shares(view) or "-",
            _rate(view),
            view.scoring_uri or "-",
            moment(view.created_at, now),
        ]
        for view in endpoints
    ]
    return fit(columns, rows, room)


def description(view: EndpointView, now: float, room: int | None = None) -> Iterator[str]:
    """All details of one endpoint."""
    fields = {
        "endpoint": view.name,
        "state": view.state,
        "address": view.scoring_uri or "none yet",
        "certificate": fingerprint(view.certificate) if view.certificate else "",
        "opened by": {"key": "keys"}.get(view.auth_mode, f"tokens ({view.auth_mode})"),
        "front door": view.run or "none yet",
        "description": view.description or "",
        "tags": ", ".join(f"{key}={value}" for key, value in sorted(view.tags.items())),
        "made": moment(view.created_at, now) + (f" by {view.created_by}" if view.created_by else ""),
    }
    yield from (f"{name + ':':<13}{text}" for name, text in fields.items() if text)
    if not view.deployments:
        yield ""
        yield f"nothing is deployed: `muster endpoint deploy -f FILE --endpoint {view.name}`"
        return
    yield ""
    columns = [
        Column("DEPLOYMENT", 12), Column("STATE"), Column("TRAFFIC"), Column("REPLICAS"), Column("MODEL", leaves=1),
        Column("RUN", leaves=2),
    ]  # fmt: skip
    rows = [
        (item.name, item.state, _share(item), _replicas(item), item.model or "-", item.run or "-")
        for item in view.deployments
    ]
    yield from fit(columns, rows, room)
    for item in view.deployments:
        if item.why:
            yield f"{_failed(item)}: {item.why}"
    if view.canary is not None:
        yield _trial(view.canary, now)
    used = [item for item in view.deployments if item.requests is not None and item.requests.requests]
    if used:
        yield ""
        yield from fit(_FIGURES, [_figures(item) for item in used], room)


def progress(item: DeploymentView) -> str:
    """The progress of a deployment in one line."""
    if item.has_failed:
        return f"{_failed(item)}: {item.why or 'see its log'}"
    replicas = f"{item.ready} of {counted(item.instances, 'replica')}"
    return f"{item.name} is {item.state}: {replicas} ready"


def _trial(trial: CanaryView, now: float) -> str:
    """The state of a canary."""
    rules = trial.rules
    if trial.state == "watching":
        return (
            f"{rules.deployment} is watched: its traffic goes back where {number(rules.errors_percent)} % more fail "
            f"than with the others, or p95 is {number(rules.slower)} times theirs"
        )
    return f"{rules.deployment} gave its traffic back {moment(trial.ended_at, now)}: {trial.why}"


def _failed(item: DeploymentView) -> str:
    """The failed revision, where an earlier one goes on serving."""
    if item.state in ("failed", "stopped"):
        return f"{item.name} {item.state}"
    return f"{item.name}: revision {item.revision} ({item.newest_run}) failed, {item.serving_revision} goes on"


def _figures(item: DeploymentView) -> Sequence[str]:
    requests, model = item.requests or ServingFigures(item.name), item.replicas or ServingFigures(item.name)
    return (
        item.name,
        f"{requests.rate:.1f}",
        *(_ms(value) for value in (requests.p50_ms, requests.p95_ms, requests.p99_ms)),
        _ms(max(requests.queue_p95_ms, model.queue_p95_ms)),
        f"{model.batch_mean:.1f}" if model.batch_mean else "-",
        f"{requests.requests:,}",
        f"{requests.failed:,}",
    )


def _ms(value: float) -> str:
    return f"{number(round(value, 1))} ms" if value else "-"


def _share(item: DeploymentView) -> str:
    return f"{item.traffic} %" if not item.mirror else f"copies of {item.mirror} %"


def _replicas(item: DeploymentView) -> str:
    most = f"-{item.max_instances}" if item.max_instances > item.instances else ""
    nodes = f" on {item.nodes} nodes" if item.nodes > 1 else ""
    return f"{item.ready} of {item.instances}{most}{nodes}"


def _shares(view: EndpointView) -> str:
    return " ".join(f"{name}={share}" for name, share in view.traffic.items())


def _rate(view: EndpointView) -> str:
    rates = [item.requests.rate for item in view.deployments if item.requests is not None]
    return f"{sum(rates):.1f}" if rates else "-"
