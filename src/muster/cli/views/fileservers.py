"""File servers as lines: lists and details. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.cli.text import counted, folded, moment, size
from muster.cli.views.columns import Column, fit
from muster.wire.data.fileservers import FileServerView, FillView


def listing(servers: Sequence[FileServerView], now: float, room: int | None) -> list[str]:
    """A line for each file server."""
    columns = [
        Column("FILE SERVER", 12), Column("STATE"), Column("HOLDS", leaves=1), Column("ADDRESS", leaves=2),
        Column("CLUSTER", leaves=3), Column("MADE", leaves=4),
    ]  # fmt: skip
    rows = [
        [
            view.name,
            view.state,
            f"{size(view.used_bytes)} of {size(view.size_bytes)}",
            address(view) or "-",
            view.cluster,
            moment(view.created_at, now),
        ]
        for view in servers
    ]
    return fit(columns, rows, room)


def address(view: FileServerView) -> str:
    """The address for NFS clients; empty where it does not serve."""
    return f"nfs://{view.address}:{view.port}{view.export}" if view.address and view.port else ""


def description(view: FileServerView, now: float, room: int | None = None) -> Iterator[str]:
    """All details of one file server."""
    restarted = f", restarted {counted(view.restarts, 'time')}" if view.restarts else ""
    fields = {
        "file server": view.name,
        "state": view.state + restarted,
        "why": view.why or "",
        "holds": f"{size(view.used_bytes)} of {size(view.size_bytes)}",
        "address": address(view) or "none yet",
        "read by": view.clients if view.clients != "127.0.0.1/32" else "only this machine",
        "cluster": view.cluster + (f", node {view.node}" if view.node else ""),
        "folder": view.folder or "",
        "run": view.run or "none yet",
        "description": view.description or "",
        "made": moment(view.created_at, now) + (f" by {view.created_by}" if view.created_by else ""),
    }
    yield from (f"{name + ':':<13}{text}" for name, text in fields.items() if text)
    yield ""
    if not view.fills:
        yield f"it is empty: `muster fileserver fill {view.name} azureml://…` brings data"
        return
    columns = [Column("FILLED FROM", 24), Column("TO", 6), Column("STATE"), Column("PROGRESS", 16)]
    rows = [(_end_of(fill.source, room), f"/{fill.to}", fill.progress.state, progress(fill)) for fill in view.fills]
    yield from fit(columns, rows, room)
    for fill in view.fills:
        if fill.progress.state == "failed":
            yield folded(f"{fill.source}: {fill.progress.text.removeprefix(f'{fill.source}: ')}", room)
            if fill.progress.next:
                yield folded(f"  {fill.progress.next}", room)
    yield ""
    yield folded(
        f"jobs name its files azureml://datastores/{view.datastore}/paths/…; clusters on other machines mount it:", room
    )
    yield f"  mounts: [{{source: 'fileserver:{view.name}', target: {view.name}}}]"


def _end_of(source: str, room: int | None) -> str:
    """An address cut at its beginning: addresses differ at the end."""
    most = len(source) if room is None else room // 2
    return source if len(source) <= most else f"…{source[1 - most :]}"


def progress(fill: FillView) -> str:
    """The progress of a fill, in short."""
    now = fill.progress
    if now.state in ("waiting", "listing") or (now.state == "failed" and not now.total_files):
        return "-"
    if now.state == "filled":
        return f"{counted(now.total_files, 'file')}, {size(now.total_bytes)}"
    done = f"{size(now.done_bytes)} of {size(now.total_bytes)}, {now.done_files:,} of {now.total_files:,} files"
    return f"{done}, {now.text}" if now.text and now.state == "filling" else done
