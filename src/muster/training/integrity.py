"""Verifies checkpoint folders: every rank writes a list of its files with hashes, which is checked before loading."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ARRAYS = "arrays.npz"


@dataclass(frozen=True)
class About:
    """A checkpoint's description."""

    step: int
    world_size: int
    metric: float | None
    best: tuple[float, int] | None
    """The best metric so far, and the step that had it."""


@dataclass(frozen=True)
class WrittenFile:
    size: int
    sha256: str


def list_name(rank: int) -> str:
    return f"rank_{rank:05d}.json"


def own_files(folder: Path, rank: int) -> list[Path]:
    """The files that this rank wrote: its shards, its own state, and on rank 0 those common to all."""
    found = [*folder.glob(f"__{rank}_*.distcp"), *folder.glob(f"rank_{rank:05d}.pt")]
    if rank == 0:
        found += [*folder.glob(".metadata"), *folder.glob(ARRAYS)]
    return sorted(found)


def write_list(folder: Path, rank: int, about: About, known: Mapping[str, str]) -> None:
    """Write this rank's list of files; the checkpoint is complete when every rank's list is there."""
    files = {
        path.name: asdict(WrittenFile(path.stat().st_size, known.get(path.name) or _sha256(path)))
        for path in own_files(folder, rank)
    }
    with (folder / list_name(rank)).open("w") as target:
        json.dump({**asdict(about), "files": files}, target)
        target.flush()
        os.fsync(target.fileno())


def read_list(folder: Path, rank: int = 0) -> tuple[About, dict[str, WrittenFile]]:
    """Read a rank's list; raises OSError, ValueError, KeyError or TypeError if it is missing or damaged."""
    content = json.loads((folder / list_name(rank)).read_text())
    files = {name: WrittenFile(file["size"], file["sha256"]) for name, file in content["files"].items()}
    best = None if content["best"] is None else (float(content["best"][0]), int(content["best"][1]))
    return About(int(content["step"]), int(content["world_size"]), content.get("metric"), best), files


def find_damage(folder: Path, stripe: int = 0, stripes: int = 1) -> str | None:
    """What is wrong with a checkpoint, or None. Several processes can share the work, each with its stripe."""
    try:
        about, _ = read_list(folder)
        lists = [read_list(folder, rank)[1] for rank in range(about.world_size)]
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"a list of files cannot be read: {error}"
    expected = {name: file for files in lists for name, file in files.items()}
    for name in sorted(expected)[stripe::stripes]:
        path = folder / name
        try:
            if path.stat().st_size != expected[name].size:
                return f"{name} has {path.stat().st_size} bytes, not {expected[name].size}"
            if _sha256(path) != expected[name].sha256:
                return f"{name} is not what was written"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
