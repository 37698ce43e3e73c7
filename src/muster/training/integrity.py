"""What makes a checkpoint folder trustworthy: a list of files with hashes from every rank, checked before loading."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def list_name(rank: int) -> str:
    return f"rank_{rank:05d}.json"


def own_files(folder: Path, rank: int) -> list[Path]:
    """What this rank wrote: its shards, its own state, and the common index in the case of rank 0."""
    found = [*folder.glob(f"__{rank}_*.distcp"), *folder.glob(f"rank_{rank:05d}.pt")]
    if rank == 0:
        found += folder.glob(".metadata")
    return sorted(found)


def write_list(folder: Path, rank: int, about: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Write this rank's list of files; the checkpoint is whole when every rank's is there."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": known.get(path.name) or _sha256(path)}
        for path in own_files(folder, rank)
    }
    with (folder / list_name(rank)).open("w") as target:
        json.dump({**about, "files": files}, target)
        target.flush()
        os.fsync(target.fileno())


def read_list(folder: Path, rank: int = 0) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / list_name(rank)).read_text())
    return content


def find_damage(folder: Path, stripe: int = 0, stripes: int = 1) -> str | None:
    """What is wrong with a checkpoint, or None. Several processes can share the work, each with its stripe."""
    try:
        world_size = read_list(folder)["world_size"]
        lists = [read_list(folder, rank)["files"] for rank in range(world_size)]
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"a list of files cannot be read: {error}"
    expected = sorted((name, about) for files in lists for name, about in files.items())
    for name, about in expected[stripe::stripes]:
        path = folder / name
        try:
            if path.stat().st_size != about["size"]:
                return f"{name} has {path.stat().st_size} bytes, not {about['size']}"
            if _sha256(path) != about["sha256"]:
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
