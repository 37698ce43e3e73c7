"""Where nodes come from. The table below is all that the server knows of engines."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Small processes on nodes are modules of this package, and have no use for it.
    from muster.clusters.flags import Flag
    from muster.engines.base import Engine

ENGINES = {
    "local": "muster.engines.local.engine:LocalEngine",
    "ray": "muster.engines.ray.engine:RayEngine",
    "slurm": "muster.engines.slurm.engine:SlurmEngine",
}

FLAGS = {"slurm": "muster.engines.slurm.options:FLAGS", "ray": "muster.engines.ray.options:FLAGS"}
"""Options of `muster cluster create` that only one engine has."""


def load_flags() -> dict[str, tuple[Flag, ...]]:
    """The command line's options by engine."""
    return {name: _load(target) for name, target in FLAGS.items()}


def load_engines(more: Mapping[str, str] | None = None) -> dict[str, Engine]:
    """Every engine by name; `more` adds those that a workspace's configuration names as `module:Class`."""
    return {name: _load(target)() for name, target in {**ENGINES, **(more or {})}.items()}


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
