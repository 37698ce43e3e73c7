"""Where the bytes of a job's inputs will come from, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.job.parts import Input
from muster.job.rules import is_address
from muster.job.spec import JobSpec


@dataclass(frozen=True)
class Holding:
    """What is known of an input before it is fetched."""

    size: int
    files: int
    more: bool = False
    """There is more than was listed."""
    nodes: tuple[str, ...] = ()
    """Nodes of the workspace that have all of it and share it."""
    cached: bool = False
    """All of it is in the cache that the nodes share."""
    is_local: bool = False
    """Nodes see it as files, on their machine or mounted. It was not listed."""
    trouble: str = ""
    """Why it could not be listed."""


def data_sources(
    spec: JobSpec, nodes: int, shared: bool, holdings: Mapping[str, Holding] | None = None
) -> tuple[str, ...]:
    """A line for each input that is a file or folder; `shared`: nodes fetch staged data from each other."""
    return tuple(_lines(spec, nodes, shared, holdings or {}))


def _lines(spec: JobSpec, nodes: int, shared: bool, holdings: Mapping[str, Holding]) -> Iterator[str]:
    for name, item in spec.inputs.items():
        if not isinstance(item, Input) or item.path is None:
            continue
        found = holdings.get(name)
        how = _how(item, nodes, shared, found if found is not None and not found.trouble else None)
        arrives = item.mode == "stream" and is_address(item.path) and not (found and found.is_local)
        meanwhile = ", while the job runs" if arrives else ""
        yield f"input {name}: {item.path}{_size(found)}, {how}{meanwhile}"


def _size(found: Holding | None) -> str:
    if found is None or found.is_local:
        return ""
    if found.trouble:
        return f" (it could not be listed: {found.trouble})"
    files = f"{found.files:,} file{'s' if found.files != 1 else ''}"
    return f" ({'more than ' if found.more else ''}{_shown(found.size)} in {files})"


def _how(item: Input, nodes: int, shared: bool, found: Holding | None) -> str:
    if item.mode == "direct":
        return "read by the job itself"
    if not is_address(item.path or ""):
        return "a path that each node reads itself"
    if found is not None and found.is_local:
        return "copied from where it lies, on the node" if item.mode == "download" else "read where it lies, not copied"
    if found is not None and found.cached:
        return "all of it is in the node's cache: nothing is read from the source"
    if found is not None and found.nodes and shared:
        first = ", ".join(found.nodes[:3]) + (f" and {len(found.nodes) - 3} more" if len(found.nodes) > 3 else "")
        have = "have" if len(found.nodes) > 1 else "has"
        return f"all of it from other nodes ({first} {have} it): nothing is read from the source"
    if shared and nodes > 1:
        each = ""
        if found is not None and not found.more:
            part = found.size / nodes
            each = f", {_shown(part)} from the source and {_shown(found.size - part)} from other nodes"
        return f"read once for {nodes} nodes: about 1/{nodes} of it by each, the rest from the others{each}"
    if shared:
        return "from other nodes of the cluster that have it, the rest from the source"
    if nodes > 1:
        total = f", {_shown(found.size * nodes)} in all" if found is not None and not found.more else ""
        return f"staged from the source by every node for itself{total}"
    return "staged from the source"


def _shown(size: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"
