"""Processes that the agent starts to build or move something: known, so that none is taken for an orphan."""

from __future__ import annotations

import os
import signal
import subprocess

from muster.agent.gpus import spawning

builders: set[int] = set()
"""Children of the agent that are no orphans. Changed while `spawning` is held."""


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End one with all that it started; a tool that outlives it would go on writing."""
    with spawning:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        builders.discard(child.pid)
    # Its children became the agent's.
    try:
        while os.waitpid(-child.pid, 0)[0]:
            pass
    except ChildProcessError:
        pass
    if child.stdin is not None:
        child.stdin.close()
