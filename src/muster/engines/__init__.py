"""Where nodes come from. The table below is all that the server knows of engines."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Small processes on nodes are modules of this package, and have no use for it.
    from muster.engines.base import Engine

ENGINES = {
    "local": "muster.engines.local.engine:LocalEngine",
    "ray": "muster.engines.ray.engine:RayEngine",
    "slurm": "muster.engines.slurm.engine:SlurmEngine",
}


def load_engines(more: Mapping[str, str] | None = None) -> dict[str, Engine]:
    """Every engine by name; `more` adds those that a workspace's configuration names as `module:Class`."""
    found: dict[str, Engine] = {}
    for name, place in {**ENGINES, **(more or {})}.items():
        module, _, kind = place.partition(":")
        found[name] = getattr(import_module(module), kind)()
    return found
