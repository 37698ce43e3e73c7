"""Starts node agents by their command line. Standard library only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from muster.host.files import read_json
from muster.paths import NodePaths
from muster.wire.codec import WireError, from_json
from muster.wire.node.agents import ServerContact

_COLLECT_TRIES = 3


def start_agent(paths: NodePaths, within: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start the agent of a node's folder on this machine; `within`: a command to run it inside."""
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


def leave_running(agents: Iterable[subprocess.Popen[bytes]]) -> None:
    """Stop Python from waiting for them: they outlive this process and are adopted by init."""
    for agent in agents:
        agent.returncode = agent.returncode or 0


def last_lines(log: Path) -> list[str]:
    """The end of the log of an agent that did not start or did not stay."""
    try:
        return log.read_text(errors="replace")[-4000:].strip().splitlines()
    except OSError:
        return []


def last_words(paths: NodePaths) -> str:
    """The last line of an agent's log."""
    return (last_lines(paths.log) or [""])[-1]


def contact_of(paths: NodePaths) -> ServerContact | None:
    """The contact of a folder's agent with the server; None where it has not recorded any."""
    try:
        return from_json(ServerContact, read_json(paths.contact))
    except (OSError, ValueError, WireError):
        return None


def has_undelivered(paths: NodePaths) -> bool:
    """Whether a node's folder holds something that no agent has delivered."""
    return paths.attempts.is_dir() and any(paths.attempts.iterdir())


class Collectors:
    """Agents on this machine that deliver what agents of lost nodes left in the shared folder."""

    def __init__(self) -> None:
        self._agents: dict[Path, subprocess.Popen[bytes]] = {}
        self._tries: dict[Path, int] = {}
        self._seen: set[Path] = set()

    def finds_dead(self, paths: NodePaths) -> bool:
        """Whether an agent that was seen alive has died; false where its lock was never visible from here."""
        if not paths.agent_lives():
            return paths.seen.exists()
        if paths.root not in self._seen:
            paths.seen.touch()
            self._seen.add(paths.root)
        return False

    def work_on(self, paths: NodePaths) -> bool:
        """Whether something in a node's folder is still to be delivered, and an agent is delivering it."""
        root = paths.root
        agent = self._agents.get(root)
        if agent is not None and agent.poll() is None:
            return True
        self._agents.pop(root, None)
        tries = self._tries.get(root, 0)
        if not has_undelivered(paths) or tries >= _COLLECT_TRIES:
            return False
        self._tries[root] = tries + 1
        self._agents[root] = start_agent(paths)
        return True

    def close(self) -> None:
        """Running agents continue without the server."""
        leave_running(self._agents.values())
        self._agents.clear()
