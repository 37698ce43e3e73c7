"""Node agents, started by their command line. Standard library only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from muster.paths import NodePaths


def start_agent(paths: NodePaths, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start the agent of a node's folder on this machine; `within`: a command that runs another."""
    paths.root.mkdir(parents=True, exist_ok=True)
    with paths.log.open("ab") as log:
        return subprocess.Popen(
            [*within, sys.executable, "-m", "muster.agent", str(paths.config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )


def last_words(paths: NodePaths) -> str:
    """The last line of an agent's log, for an agent that did not come or did not stay."""
    try:
        lines = paths.log.read_text(errors="replace")[-4000:].strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def has_undelivered(paths: NodePaths) -> bool:
    """Whether a node's folder holds something that no agent has delivered."""
    return paths.attempts.is_dir() and any(paths.attempts.iterdir())
