"""Golden screens: what a terminal shows, kept in files. UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def golden(path: Path, lines: Sequence[str]) -> None:
    """Compare lines with those that are kept."""
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is not there: UPDATE_GOLDEN=1 writes it"
    assert text == path.read_text(), f"{path.name} is not what is shown; UPDATE_GOLDEN=1 writes it anew"
