"""Clusters, nodes and costs as lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.cli.console import Paint
from muster.cli.text import counted, duration, moment, size, table
from muster.wire.clusters import ClusterUse, ClusterView, CostLine, CostReport, NodeStateView, NodeView


def listing(clusters: Sequence[ClusterView]) -> list[str]:
    """One line per cluster."""
    rows = [
        (
            view.name,
            view.engine,
            view.state,
            str(len(view.nodes)),
            f"{view.min_nodes}–{view.max_nodes}",
            str(sum(node.state == "running" for node in view.nodes)),
            str(view.queued),
            _kind(view),
        )
        for view in clusters
    ]
    return table(("NAME", "ENGINE", "STATE", "NODES", "LIMITS", "BUSY", "QUEUED", "KIND"), rows)


def summary(view: ClusterView) -> str:
    limits = f"{view.min_nodes} to {view.max_nodes} nodes"
    return f"cluster {view.name} is {view.state}: {counted(len(view.nodes), 'node')} now, {limits}"


def cluster_lines(view: ClusterView, paint: Paint, now: float, use: ClusterUse | None = None) -> list[str]:
    """All details of one cluster."""
    rows = [
        ("why", view.reason),
        ("engine", view.engine),
        ("nodes", _extent(view)),
        ("kind", _kind(view)),
        ("priority", view.vm_priority if view.vm_priority != "dedicated" else None),
        ("price", f"${view.price_per_hour:g} per node and hour" if view.price_per_hour is not None else None),
        ("set-up", view.options.get("setup")),
        ("mounts", _mounts(view)),
        ("queued", counted(view.queued, "run") if view.queued else None),
        ("in use", _used(use) if use is not None else None),
        ("about", view.options.get("description")),
    ]
    lines = [f"{paint(view.name, 'bold')}  {view.state}"]
    lines += [f"  {paint(label.ljust(8), 'dim')} {value}" for label, value in rows if value]
    return [*lines, "", *node_lines(view.nodes, now)] if view.nodes else lines


def node_lines(nodes: Sequence[NodeView], now: float) -> list[str]:
    """Nodes with their states."""
    if not nodes:
        return ["no nodes"]
    rows = [
        (node.name, node.state, moment(node.since, now) if node.since else "", ", ".join(node.runs), node.reason)
        for node in nodes
    ]
    return table(("NODE", "STATE", "SINCE", "RUNS", "WHY"), rows)


def history_lines(states: Sequence[NodeStateView], now: float) -> list[str]:
    """The states of one node so far."""
    if not states:
        return ["no states yet"]
    rows = [(moment(item.at, now), item.state, item.reason) for item in states]
    return table(("WHEN", "STATE", "WHY"), rows)


def cost_lines(found: CostReport, limit: int | None = None) -> list[str]:
    """Node hours and cost by run, user or cluster: the greatest first, and at most so many."""
    if not found.lines or found.total is None:
        return ["nothing has run yet"]
    head = (found.by.upper(), "RUNS", "NODE HOURS", "GPU HOURS", "COST")
    rows = [(line.key, *_figures(line)) for line in found.lines[:limit]]
    return table(head, [*rows, ("total", *_figures(found.total))])


def _extent(view: ClusterView) -> str:
    if view.lent:
        return f"{len(view.nodes)}, lent by {view.engine} for each run"
    idle = duration(view.idle_seconds_before_scaledown)
    return f"{len(view.nodes)} now, {view.min_nodes} to {view.max_nodes}; idle ones are released after {idle}"


def _mounts(view: ClusterView) -> str:
    """The cluster's mounts, one per line."""
    given = view.options.get("mounts")
    mounts = [mount for mount in given if isinstance(mount, Mapping)] if isinstance(given, list) else []
    lines = [
        f"$MUSTER_MOUNTS/{mount.get('target')}  {mount.get('source')}"
        + ("" if mount.get("read_only", True) else ", can be written to")
        for mount in mounts
    ]
    return f"\n{' ' * 11}".join(lines)


def _used(use: ClusterUse) -> str | None:
    """How busy its nodes were in the last hours."""
    step_hours = use.step_s / 3600
    busy = sum(point.busy for point in use.points) * step_hours
    nodes = sum(point.nodes or 0.0 for point in use.points) * step_hours
    if not busy and not nodes:
        return None
    share = f", {busy / nodes:.0%} of its nodes' time" if nodes else ""
    return f"{busy:.2g} node hours in the last {step_hours * len(use.points):g} hours{share}"


def _figures(line: CostLine) -> tuple[str, str, str, str]:
    cost = "-"
    if line.cost is not None:
        part = "" if line.priced_node_hours >= line.node_hours * 0.999 else " plus unpriced hours"
        cost = f"${line.cost:.2f}{part}"
    return (str(line.runs), f"{line.node_hours:.3f}", f"{line.gpu_hours:.3f}", cost)


def _kind(view: ClusterView) -> str:
    known, node = view.size, view.node
    if known:
        gpus = f", {known.gpus} {known.gpu}" if known.gpus else ""
        return f"{known.name} ({counted(known.cpus, 'CPU')}{gpus}{', InfiniBand' if known.infiniband else ''})"
    if view.options.get("vm_size"):
        return str(view.options["vm_size"])
    if not node:
        return ""
    gpus = f", {counted(node.gpus, 'GPU')}" if node.gpus else ""
    return f"{counted(node.cpus, 'CPU')}{gpus}, {size(node.memory_bytes)}"
