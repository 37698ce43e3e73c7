"""Files that tracking tools wrote outside `outputs`: folders of MLflow and Weights & Biases, TensorBoard's events."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from muster.host.files import is_shortage

_FOLDERS = {"mlruns": "MLflow", "mlartifacts": "MLflow", "wandb": "Weights & Biases"}
_DATABASES = {"mlflow.db": "MLflow", "mlruns.db": "MLflow"}
EVENTS_PREFIX, _BESIDE_EVENTS = "events.out.tfevents.", ("hparams.yaml",)
_KEPT_ANYWAY = ("outputs", "logs")
PASSED_OVER = {".git", "__pycache__", "node_modules", ".venv", ".ipynb_checkpoints"}
_MOST_FOLDERS = 20_000
_DEPTH = 8


def find(work: Path, since: float) -> tuple[dict[str, Path], list[str]]:
    """Files that a job wrote there, by their name under `outputs`; and a description of them.

    Files that are older than the start of the job came with its code.
    """
    files: dict[str, Path] = {}
    tools: Counter[str] = Counter()
    for seen, (base, folders, names) in enumerate(os.walk(work, onerror=_raise_shortage)):
        inside = Path(base).relative_to(work)
        if seen > _MOST_FOLDERS or len(inside.parts) >= _DEPTH:
            folders.clear()
        elif not inside.parts:
            folders[:] = [name for name in folders if name not in _KEPT_ANYWAY]
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER)
        owner = next((_FOLDERS[part] for part in inside.parts if part in _FOLDERS), "")
        has_events = any(name.startswith(EVENTS_PREFIX) for name in names)
        for name in sorted(names):
            is_event = has_events and (name.startswith(EVENTS_PREFIX) or name in _BESIDE_EVENTS)
            path = Path(base, name)
            tool = owner or _DATABASES.get(name, "")
            if (tool or is_event) and _is_new(path, since):
                files[f"outputs/{inside.as_posix()}/{name}" if inside.parts else f"outputs/{name}"] = path
                tools[tool or "TensorBoard"] += 1
    descriptions = [
        f"{count:,} {'file' if count == 1 else 'files'} that {tool} wrote in the working folder "
        f"{'is' if count == 1 else 'are'} kept below outputs/"
        for tool, count in sorted(tools.items())
    ]
    return files, descriptions


def _raise_shortage(error: OSError) -> None:
    """Raise where descriptors or memory ran out; other unreadable folders are skipped."""
    if is_shortage(error):
        raise error


def _is_new(path: Path, since: float) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return path.is_file() and not path.is_symlink() and status.st_mtime >= since
