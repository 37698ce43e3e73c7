"""What this machine has for building and running environments, for decisions that are made before anything starts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import TypedDict

from muster.environments.failures import Failure
from muster.environments.images import engines, reach
from muster.environments.venvs import interpreters
from muster.environments.venvs.steps import CONDA_TOOLS


class Here(TypedDict):
    """The parts of a `Site` that describe this machine."""

    pythons: tuple[tuple[int, ...], ...]
    has_conda: bool
    container_trouble: Callable[[str], str]


def here(python: str | None = None) -> Here:
    """Describe this machine; `python` is the job's own interpreter."""
    own = python if python and os.access(python, os.X_OK) else sys.executable
    return Here(
        pythons=interpreters.versions_here(own),
        has_conda=any(shutil.which(tool) for tool in CONDA_TOOLS),
        container_trouble=container_trouble,
    )


def container_trouble(image: str = "") -> str:
    """Why no container can run here, or why this image cannot; empty if it can.

    For an image it returns what `reach.look` has found: it never waits for a registry itself.
    """
    try:
        engines.find(os.environ)
    except Failure as failure:
        return str(failure)
    return reach.remembered(image)
