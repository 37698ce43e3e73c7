"""Keeps an agent on a node of a Ray cluster while the node belongs to Ray. Standard library only.

The agent ends with the raylet, whoever killed it, and when neither Ray's head nor Muster's server can be reached any
more: Ray gives such a node away while its processes run on. Keepers then end the ranks, and a second agent delivers
what is left in the folder as soon as the server can be reached.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from muster.engines.agents import has_undelivered, start_agent
from muster.host.files import PRIVATE, read_json, write_json
from muster.paths import NodePaths
from muster.wire.codec import from_json, to_json

FILE = "leash.json"
PID = "leash.pid"
_LOOK_S = 1.0
_PROBE_S = 3.0


def main() -> None:
    """`python -m muster.engines.ray.leash FOLDER`: start the agent of a node's folder, and go into the background."""
    root = Path(sys.argv[1])
    # Ray kills the children of its workers; a process adopted by init survives.
    child = os.fork()
    if child:
        # A caller that waits for this process should find the one that stays.
        (root / PID).write_text(str(child))
        os._exit(0)
    os.setsid()
    Leash(root, read_settings(root)).run()


@dataclass(frozen=True)
class LeashSettings:
    """The conditions that end an agent."""

    raylet: int
    """Ray's daemon on this node."""
    addresses: tuple[str, ...]
    """At least one of them must be reachable."""
    cut_off_s: float


def read_settings(root: Path) -> LeashSettings:
    return from_json(LeashSettings, read_json(root / FILE))


@dataclass
class Contact:
    """How long none of the needed addresses could be reached."""

    patience_s: float
    last: float = field(default_factory=time.monotonic)

    def cut_off(self, now: float, reached: bool) -> bool:
        if reached:
            self.last = now
        return now - self.last > self.patience_s


class Leash:
    """One agent, and the conditions that end it."""

    def __init__(self, root: Path, settings: LeashSettings) -> None:
        self._paths = NodePaths(root)
        self._settings = settings
        self._contact = Contact(settings.cut_off_s)
        self._next_probe = 0.0
        self._asked_to_end = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_asked_to_end", True))
        agent = start_agent(self._paths)
        why = self._watch(agent)
        if why:
            self._say(f"{why}: the agent is ended")
            agent.kill()
        agent.wait()
        if has_undelivered(self._paths):
            # Like any agent that follows a killed one: it delivers, and then has nothing to do.
            start_agent(self._paths).wait()
        if not has_undelivered(self._paths):
            shutil.rmtree(self._paths.root, ignore_errors=True)

    def _watch(self, agent: subprocess.Popen[bytes]) -> str:
        """Wait for the agent's end, or for a reason to end it."""
        daemon = f"Ray's daemon {self._settings.raylet} on this node"
        try:
            raylet = os.pidfd_open(self._settings.raylet)
        except ProcessLookupError:
            return f"{daemon} is gone"
        try:
            passed_on = False
            while agent.poll() is None:
                if self._asked_to_end and not passed_on:
                    passed_on = True
                    agent.terminate()
                ended, _, _ = select.select([raylet], [], [], _LOOK_S)
                if ended:
                    return f"{daemon} ended"
                if self._is_cut_off():
                    return "neither Ray's head nor the server can be reached"
            return ""
        finally:
            os.close(raylet)

    def _is_cut_off(self) -> bool:
        now = time.monotonic()
        if now < self._next_probe:
            return False
        self._next_probe = now + _PROBE_S
        return self._contact.cut_off(now, any(map(reachable, self._settings.addresses)))

    def _say(self, text: str) -> None:
        with self._paths.log.open("a") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def reachable(address: str, timeout_s: float = 2.0) -> bool:
    """Whether something listens at `HOST:PORT` or a URL."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout_s).close()
    except OSError:
        return False
    return True


def leash_lives(root: Path) -> bool:
    """Whether a process looks after a node's folder."""
    try:
        pid = int((root / PID).read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
    return str(root).encode() in command


def start(root: Path, settings: LeashSettings, environment: Mapping[str, str]) -> None:
    """Start a process that starts and keeps the agent of a node's folder; returns at once."""
    write_json(root / FILE, to_json(settings), mode=PRIVATE)
    command = [sys.executable, "-m", "muster.engines.ray.leash", str(root)]
    subprocess.run(command, env=environment, cwd="/", start_new_session=True, check=True)


if __name__ == "__main__":
    main()
