"""Where the bytes of a job's inputs will come from, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.job.parts import Input
from muster.job.rules import is_address
from muster.job.spec import JobSpec


def data_sources(spec: JobSpec, nodes: int, shared: bool) -> tuple[str, ...]:
    """A line for each input that is a file or folder; `shared`: nodes take what is staged from each other."""
    return tuple(_lines(spec, nodes, shared))


def _lines(spec: JobSpec, nodes: int, shared: bool) -> Iterator[str]:
    for name, item in spec.inputs.items():
        if not isinstance(item, Input) or item.path is None:
            continue
        yield f"input {name}: {item.path}, {_how(item, nodes, shared)}"


def _how(item: Input, nodes: int, shared: bool) -> str:
    if item.mode == "direct":
        return "read by the job itself"
    if not is_address(item.path or ""):
        return "a path that each node reads itself"
    if shared and nodes > 1:
        return f"read once for {nodes} nodes: about 1/{nodes} of it by each, the rest from the others"
    if shared:
        return "from other nodes of the cluster that have it, the rest from the source"
    return "staged from the source" + (" by every node for itself" if nodes > 1 else "")
