"""The copy of the in-run API that goes on the ranks' PYTHONPATH, where Muster may not be installed."""

from __future__ import annotations

from pathlib import Path

import muster.agent
from muster.host.files import write_file
from muster.paths import NodePaths

_PACKAGE = Path(muster.agent.__file__).parents[1]
_PARTS = ("__init__.py", "run.py", "errors.py", "runtime")
_KEEPER_PARTS = (
    "__init__.py",
    "errors.py",
    "agent/__init__.py",
    "agent/run/__init__.py",
    "agent/run/keeper.py",
    "agent/run/records.py",
    "agent/run/stacks.py",
    "agent/run/container/__init__.py",
    "agent/run/container/inside.py",
    "agent/run/mpi/__init__.py",
    "agent/run/mpi/pmix.py",
    "agent/run/mpi/rank.py",
    "agent/run/mpi/remote.py",
    "agent/run/mpi/coordinator.py",
    "agent/run/mpi/standin.py",
    "host/__init__.py",
    "host/processes.py",
    "launch/__init__.py",
    "launch/expand.py",
)


def install(node: NodePaths, version: str) -> Path:
    """Bring the copy in step with this installation; returns the folder for PYTHONPATH."""
    _bring(_KEEPER_PARTS, node.runtime / f"{version}-keeper")
    target = _bring(_PARTS, folder(node, version))
    _copy(_PACKAGE / "runtime" / "hook.py", target / "sitecustomize.py")
    return target


def folder(node: NodePaths, version: str) -> Path:
    """Where the copy is."""
    return node.runtime / version


def _bring(parts: tuple[str, ...], target: Path) -> Path:
    for part in parts:
        source = _PACKAGE / part
        for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            if file.exists():
                _copy(file, target / "muster" / file.relative_to(_PACKAGE))
    return target


def _copy(source: Path, target: Path) -> None:
    content = source.read_bytes()
    if target.exists() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # Ranks may be importing the old one at this moment.
    write_file(target, content)
