"""What agents could not deliver before their nodes were taken back is delivered from here, out of the shared folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from muster.engines.agents import has_undelivered, start_agent
from muster.paths import NodePaths

_TRIES = 3


class Collectors:
    """Agents on this machine for the folders of nodes that are gone; each ends once all is delivered."""

    def __init__(self) -> None:
        self._agents: dict[Path, subprocess.Popen[bytes]] = {}
        self._tries: dict[Path, int] = {}

    def work_on(self, paths: NodePaths) -> bool:
        """Whether something is still to be delivered out of a node's folder, and somebody is at it."""
        root = paths.root
        agent = self._agents.get(root)
        if agent is not None and agent.poll() is None:
            return True
        self._agents.pop(root, None)
        if not has_undelivered(paths) or self._tries.get(root, 0) >= _TRIES:
            return False
        self._tries[root] = self._tries.get(root, 0) + 1
        self._agents[root] = start_agent(paths)
        return True

    def close(self) -> None:
        """Those at work go on without the server."""
        for agent in self._agents.values():
            if agent.poll() is None:
                # Adopted by init from now on; it is no child to wait for.
                agent.returncode = 0
        self._agents.clear()
