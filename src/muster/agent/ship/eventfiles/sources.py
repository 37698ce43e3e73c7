"""Finds the files that TensorBoard's writers and W&B have below the folders of a job."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.agent.ship.eventfiles import tensorboard, wandb
from muster.agent.ship.strays import EVENTS_PREFIX, PASSED_OVER

_MOST_FOLDERS, _DEPTH = 5_000, 8
MOST_SOURCES = 256


@dataclass(frozen=True)
class Source:
    """A file to read: below one of the job's folders, by its name there."""

    tool: str
    root: Path
    inner: str

    @property
    def name(self) -> str:
        """Its name in the journal."""
        return f"{self.root.name}/{self.inner}"

    @property
    def folder(self) -> str:
        """What its tool calls a run: for W&B, the name of the run."""
        above = self.inner.rpartition("/")[0]
        return above.rpartition("/")[2] if self.tool == wandb.TOOL else above


def find(root: Path, since: float) -> list[Source]:
    """Files written since the job began, sorted by name; files that came with its code are older."""
    found = []
    for path, tool in _files(root):
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_mtime >= since:
            found.append(Source(tool, root, path.relative_to(root).as_posix()))
        if len(found) >= MOST_SOURCES:
            break
    return found


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    depth = len(root.parts)
    for seen, (base, folders, names) in enumerate(os.walk(root)):
        if seen > _MOST_FOLDERS:
            return
        if len(Path(base).parts) - depth >= _DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER)
        for name in sorted(names):
            if name.startswith(EVENTS_PREFIX):
                yield Path(base, name), tensorboard.TOOL
            elif name.startswith("run-") and name.endswith(".wandb"):
                yield Path(base, name), wandb.TOOL
