"""Virtual environments of this host: a folder for each key, complete or not there, and never removed while in use."""

from __future__ import annotations

from pathlib import Path

from muster.defaults import ENVIRONMENTS_LIMIT_BYTES
from muster.host.cache import Entry, FolderCache
from muster.wire.message import wire
from muster.wire.node.recipes import Recipe


@wire
class BuildRecord:
    """What lies with a complete environment."""

    label: str
    python: str
    """Its version."""
    lock: tuple[str, ...]
    size: int
    built_at: float
    built_s: float
    recipe: Recipe
    indexes: tuple[str, ...] = ()


Built = Entry[BuildRecord]


class Cache(FolderCache[BuildRecord]):
    """The folder that holds them, with a limit in bytes."""

    def __init__(self, root: Path, limit_bytes: int = ENVIRONMENTS_LIMIT_BYTES) -> None:
        super().__init__(root, limit_bytes, BuildRecord, record_name="muster-environment.json")

    def read(self, key: str) -> Built | None:
        """An environment without its interpreter is not complete."""
        built = super().read(key)
        return built if built is not None and python_of(built).exists() else None


def python_of(built: Built) -> Path:
    """The environment's interpreter."""
    return built.folder / "bin" / "python"
