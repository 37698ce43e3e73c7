"""The engines by name: built in, installed by other packages (entry points), or named by the workspace.

An engine is imported when a cluster first wants it, so one that is broken harms nobody else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points

from muster import errors
from muster.engines.base import Engine, NodeEngine, QueueEngine

log = logging.getLogger("muster.server")

GROUP = "muster.engines"
"""The group of entry points, each `name = "module:Class"`."""
DEFAULT = "local"
BUILT_IN = {
    "local": "muster.engines.local.engine:LocalEngine",
    "ray": "muster.engines.ray.engine:RayEngine",
    "slurm": "muster.engines.slurm.sites:SlurmSites",
    "slurm-pool": "muster.engines.slurm_pool.engine:SlurmPool",
}


class Engines:
    """Every engine that this server can use; safe to use from several threads."""

    def __init__(self, configured: Mapping[str, str] | None = None) -> None:
        """`configured`: those that a workspace's configuration names, as `module:Class`; they take precedence."""
        self._sources: dict[str, tuple[str, str]] = {
            **{
                item.name: (item.value, f"the package {item.dist.name if item.dist else 'unknown'}")
                for item in entry_points(group=GROUP)
            },
            **{name: (value, "Muster") for name, value in BUILT_IN.items()},
            **{name: (value, "the workspace's configuration") for name, value in (configured or {}).items()},
        }
        self._lock = threading.Lock()
        self._loaded: dict[str, Engine | errors.JobError] = {}

    def get(self, name: str) -> Engine:
        """An engine, or a refusal that says why it is not available."""
        found = self._found(name)
        if isinstance(found, errors.JobError):
            raise found
        return found

    def owner(self, name: str) -> NodeEngine | None:
        """The engine, if it owns nodes and can be used."""
        engine = self._found(name)
        return engine if isinstance(engine, NodeEngine) else None

    def queue(self, name: str) -> QueueEngine | None:
        """The engine, if it has its own queue and can be used."""
        engine = self._found(name)
        return engine if isinstance(engine, QueueEngine) else None

    def on_this_machine(self, name: str | None) -> bool:
        """Whether the engine's nodes see the folders of the server's machine."""
        engine = self._found(name) if name else None
        return isinstance(engine, Engine) and engine.on_this_machine

    def takes_orders_from_ranks(self, name: str | None) -> bool:
        """Whether ranks could make the engine run anything as its account."""
        engine = self._found(name) if name else None
        return isinstance(engine, Engine) and engine.takes_orders_from_ranks

    def trouble(self, name: str) -> str:
        """Why an engine cannot be used; empty: it can."""
        found = self._found(name)
        return found.message if isinstance(found, errors.JobError) else ""

    def close(self) -> None:
        for engine in self._loaded.values():
            if isinstance(engine, Engine):
                engine.close()

    def _found(self, name: str) -> Engine | errors.JobError:
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._load(name)
            return self._loaded[name]

    def _load(self, name: str) -> Engine | errors.JobError:
        if name not in self._sources:
            return errors.JobError(f"there is no engine {name!r}", f"Engines: {', '.join(sorted(self._sources))}.")
        value, whose = self._sources[name]
        module, _, kind = value.partition(":")
        try:
            made = getattr(import_module(module), kind)()
            if not isinstance(made, NodeEngine | QueueEngine):
                raise TypeError(f"{kind} is neither a NodeEngine nor a QueueEngine")
        except Exception as error:
            log.exception("the engine %s cannot be used", name)
            why = f"{type(error).__name__}: {error}"
            return errors.JobError(
                f"the engine {name!r} ({value}, from {whose}) cannot be used: {why}",
                "Repair or remove what provides it, and start the server again (`muster down`).",
            )
        return made
