"""Virtual environments of this host: a folder for each key, complete or absent, and never removed while in use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from muster.defaults import ENVIRONMENTS_LIMIT_BYTES
from muster.host.cache import Entry, FolderCache
from muster.host.files import write_file
from muster.wire.message import wire
from muster.wire.node.recipes import UNNAMED, Recipe

RECORD = "muster-environment.json"
_TOOK = ".took"


@wire
class BuildRecord:
    """The record in a complete environment."""

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
        super().__init__(root, limit_bytes, BuildRecord, record_name=RECORD)

    def read(self, key: str) -> Built | None:
        """An environment without its interpreter is not complete."""
        built = super().read(key)
        return built if built is not None and python_of(built).exists() else None

    def complete(self, key: str, record: BuildRecord) -> None:
        """Also records how long the build took, for the next time."""
        super().complete(key, record)
        (self.root / _TOOK).mkdir(exist_ok=True)
        write_file(self.root / _TOOK / key, f"{record.built_s}")

    def took_s(self, key: str, label: str) -> float | None:
        """How long it took to build this last time, or else another of the same name; None if unknown."""
        with suppress(OSError, ValueError):
            return float((self.root / _TOOK / key).read_text())
        if label in UNNAMED:
            return None
        same = [entry.record for entry in self.entries() if entry.record.label == label]
        last = max(same, key=lambda record: record.built_at, default=None)
        return last.built_s if last else None


def python_of(built: Built) -> Path:
    """The environment's interpreter."""
    return built.folder / "bin" / "python"
