"""Publishes a checkpoint: complete and on disk first, then renamed into the folder that the agent watches."""

import os
import shutil
from pathlib import Path
from typing import Any, Optional


def publish(folder: Path, path: Any, step: Optional[int] = None) -> Path:
    """Make a file or folder visible as a checkpoint, whole or not at all; returns its path."""
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError("there is no checkpoint {}".format(source))
    name = source.name if step is None else "step_{}".format(int(step))
    while name.endswith(".tmp"):
        name = name[: -len(".tmp")]
    name = name.lstrip(".")
    if not name:
        raise ValueError("{!r} leaves no name for the checkpoint; give a step".format(source.name))
    staged = folder / ".{}.{}.tmp".format(name, os.getpid())
    _remove(staged)
    if source.resolve().parent == folder.resolve():
        source.rename(staged)
    elif source.is_dir():
        shutil.copytree(str(source), str(staged))
    else:
        shutil.copyfile(str(source), str(staged))
    _sync_tree(staged)
    target = folder / name
    if target.is_dir():
        # A rename cannot replace a folder that is not empty.
        _remove(target)
    staged.replace(target)
    _sync(folder)
    return target


def _sync_tree(path: Path) -> None:
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            if not entry.is_symlink():
                _sync_tree(entry)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(str(path))
    elif path.exists():
        path.unlink()
