"""The copy of the in-run API that goes on the ranks' PYTHONPATH, where Muster may not be installed."""

from __future__ import annotations

from pathlib import Path

import muster.agent
from muster.host.files import write_file

_PACKAGE = Path(muster.agent.__file__).parents[1]
_PARTS = ("__init__.py", "run.py", "errors.py", "runtime", "scoring", "rankfiles", "horovod_compat")
_ENTRY_POINTS = "[fsspec.specs]\nazureml = muster.rankfiles:AzureMLFileSystem\n"
_METADATA = "Metadata-Version: 2.1\nName: muster-ranks\nVersion: 1\n"
"""Entry points by which fsspec finds Muster's file system where Muster is not installed."""
_KEEPER_PARTS = (
    "__init__.py",
    "errors.py",
    "agent/__init__.py",
    "agent/run/__init__.py",
    "agent/run/keeper.py",
    "agent/run/memory.py",
    "agent/run/records.py",
    "agent/run/sessions/__init__.py",
    "agent/run/sessions/carrier.py",
    "agent/run/sessions/session_rank.py",
    "agent/run/sessions/port.py",
    "agent/run/sessions/process.py",
    "agent/run/sessions/python_stacks.py",
    "agent/run/sessions/shell.py",
    "agent/run/stacks.py",
    "agent/run/container/__init__.py",
    "agent/run/container/inside.py",
    "agent/run/mpi/__init__.py",
    "agent/run/mpi/rank.py",
    "agent/run/mpi/remote.py",
    "agent/run/mpi/coordinator.py",
    "agent/run/mpi/standin.py",
    "host/__init__.py",
    "host/clock.py",
    "host/frames.py",
    "host/processes.py",
    "host/streams.py",
    "launch/__init__.py",
    "launch/expand.py",
)


def install(folder: Path) -> None:
    """Bring the copy in the folder for PYTHONPATH, and the one for keepers next to it, up to date."""
    _copy_parts(_KEEPER_PARTS, keeper_folder(folder))
    _copy_parts(_PARTS, folder)
    _copy(_PACKAGE / "runtime" / "hook.py", folder / "sitecustomize.py")
    for name, text in (("METADATA", _METADATA), ("entry_points.txt", _ENTRY_POINTS)):
        _write(text.encode(), folder / "muster_ranks-1.dist-info" / name)


def keeper_folder(runtime: Path) -> Path:
    """The copy of Muster whose programs run in a container."""
    return runtime.with_name(f"{runtime.name}-keeper")


def _copy_parts(parts: tuple[str, ...], target: Path) -> None:
    for part in parts:
        source = _PACKAGE / part
        for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            if file.exists():
                _copy(file, target / "muster" / file.relative_to(_PACKAGE))


def _copy(source: Path, target: Path) -> None:
    _write(source.read_bytes(), target)


def _write(content: bytes, target: Path) -> None:
    if target.exists() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # Ranks may be importing the old one at this moment.
    write_file(target, content)
