"""Images that Muster built on this machine, for `muster env` to show and remove."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from muster.environments.images.command import APPTAINER, KINDS, Engine
from muster.environments.images.kept import Kept, listing, remove

_ASK_S = 30.0


@dataclass(frozen=True)
class Image:
    """An image, and the engine that has it."""

    engine: Engine
    kept: Kept

    def is_meant_by(self, text: str) -> bool:
        """Whether a text names it: a prefix of its id, or its name."""
        return self.kept.key.startswith(text) or text in self.kept.names

    def remove(self) -> bool:
        """Remove it unless a job or a container uses it."""
        return remove(self.engine, self.kept, _ask)


def images_here() -> list[Image]:
    """Every image that Muster built, by engine, the last used first."""
    found = []
    for kind in KINDS:
        program = kind if kind == APPTAINER else shutil.which(kind)
        if program is not None:
            engine = Engine(kind, program)
            found += [Image(engine, kept) for kept in listing(engine, _ask)]
    return found


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, env=dict(os.environ)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(list(command), 127, b"", str(error).encode())
