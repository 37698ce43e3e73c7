"""Starts a node agent on this machine, by its command line."""

from __future__ import annotations

import subprocess
import sys

from muster.paths import NodePaths


def start_agent(paths: NodePaths) -> subprocess.Popen[bytes]:
    paths.root.mkdir(parents=True, exist_ok=True)
    with paths.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "muster.agent", str(paths.config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
