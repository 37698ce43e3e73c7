"""All keepers of a node: asks the nursery for them, hears them, and knows when nothing of one is left.

Runs in the agent's loop. While the nursery lives it ends what a dead keeper left; keepers that have outlived their
nursery became children of the agent, which then does the same for them.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import muster.agent
from muster.agent.run.records import Channel, Entry, StopCommand
from muster.agent.run.variables import NODE_MARK
from muster.host import processes
from muster.host.children import own_children, spawning
from muster.wire.node.agents import AttemptKey

log = logging.getLogger(__name__)

# Without site-packages it is small and starts in 20 ms.
_NURSERY = "import sys; sys.path.append(sys.argv[1]); from muster.agent.run.nursery import main; main()"


class Owner(Protocol):
    """Who has the keepers; called in the agent's loop."""

    def keeper_said(self, key: AttemptKey, entry: Entry) -> None: ...

    def keeper_closed(self, key: AttemptKey) -> None:
        """Once per keeper, when neither it nor anything below it is alive."""


@dataclass
class Kept:
    """One keeper."""

    key: AttemptKey
    channel: Channel
    pid: int | None = None
    generation: int = 0
    """Which nursery forked it."""
    silent: bool = False
    """Its channel is closed: it has ended or died."""


@dataclass
class KeeperPool:
    """All keepers of the node, and the nursery that makes them."""

    selector: selectors.BaseSelector
    mark: str
    trouble_log: Path
    owner: Owner
    _kept: dict[AttemptKey, Kept] = field(default_factory=dict)
    _nursery: subprocess.Popen[bytes] | None = None
    _channel: Channel | None = None
    _generation: int = 0

    def start(self) -> None:
        """Start a nursery."""
        ours, theirs = socket.socketpair()
        root = str(Path(muster.agent.__file__).parents[2])
        environment = {NODE_MARK: self.mark, "PATH": os.defpath, "LANG": "C.UTF-8"}
        with self.trouble_log.open("ab") as trouble, spawning:
            self._nursery = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _NURSERY, root, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=trouble,
                stderr=trouble,
                env=environment,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        self._channel = Channel(ours)
        self._generation += 1
        self.selector.register(self._channel, selectors.EVENT_READ, self._hear_nursery)

    def launch(self, key: AttemptKey, launch_file: Path, locks: Sequence[int]) -> None:
        """Have the ranks started; the keeper takes the descriptors along."""
        ours, theirs = socket.socketpair()
        kept = self._kept[key] = Kept(key, Channel(ours), generation=self._generation)
        self.selector.register(kept.channel, selectors.EVENT_READ, lambda: self._hear_keeper(kept))
        request = json.dumps({"key": f"{key[0]}.{key[1]}", "launch": str(launch_file)}).encode()
        try:
            assert self._channel is not None
            socket.send_fds(self._channel.socket, [request], [theirs.fileno(), *locks])
        except OSError as error:
            # The nursery is dying; closing the keeper's end tells this attempt so, too.
            log.warning("the nursery did not take the request of %s: %s", key, error)
        theirs.close()

    def stop(self, key: AttemptKey, grace_s: float, reason: str) -> None:
        kept = self._kept.get(key)
        if kept is None or kept.silent:
            return
        command: StopCommand = {"grace_s": grace_s, "reason": reason}
        if not kept.channel.send(json.dumps(command).encode() + b"\n"):
            log.info("the keeper of %s is not listening", key)

    def tend(self) -> bool:
        """Look after what outlived its nursery; True when it wants to be called again soon."""
        orphaned = [kept for kept in self._kept.values() if kept.generation < self._generation]
        lost = [kept for kept in orphaned if kept.silent]
        if not lost:
            return False
        # A keeper that has not said its pid yet must not be taken for an orphan.
        if any(kept.pid is None and not kept.silent for kept in self._kept.values()):
            return True
        if not self._end_orphans():
            return True
        for kept in lost:
            self._forget(kept)
        return False

    def close(self, timeout_s: float = 5.0) -> None:
        """Let go: keepers and nursery end by themselves."""
        for kept in list(self._kept.values()):
            self._close_channel(kept)
        if self._channel is not None:
            self.selector.unregister(self._channel)
            self._channel.close()
            self._channel = None
        if self._nursery is not None:
            try:
                self._nursery.wait(timeout_s)
            except subprocess.TimeoutExpired:
                log.warning("the nursery is still busy")

    def _hear_nursery(self) -> None:
        assert self._channel is not None
        messages = self._channel.receive()
        if messages is None:
            self._replace_nursery()
            return
        for message in messages:
            if "born" in message:
                run, _, attempt = message["born"].rpartition(".")
                if (run, int(attempt)) in self._kept:
                    self._kept[run, int(attempt)].pid = message["pid"]
            elif "gone" in message:
                self._gone(message["gone"])
            elif "failed" in message:
                log.error("%s: %s", message["failed"], message["message"])

    def _gone(self, pid: int) -> None:
        for kept in list(self._kept.values()):
            if kept.pid == pid and kept.generation == self._generation:
                # Hear what it said before it went.
                while not kept.silent:
                    self._hear_keeper(kept)
                self._forget(kept)

    def _replace_nursery(self) -> None:
        assert self._channel is not None and self._nursery is not None
        self.selector.unregister(self._channel)
        self._channel.close()
        self._nursery.kill()
        status = self._nursery.wait()
        log.error("the nursery ended (%s); a new one is started", status)
        self.start()

    def _hear_keeper(self, kept: Kept) -> None:
        entries: list[Entry] | None = kept.channel.receive()
        if entries is None:
            self._close_channel(kept)
            return
        for entry in entries:
            if entry["kind"] == "keeper":
                kept.pid = entry["pid"]
            self.owner.keeper_said(kept.key, entry)

    def _close_channel(self, kept: Kept) -> None:
        if not kept.silent:
            kept.silent = True
            self.selector.unregister(kept.channel)
            kept.channel.close()

    def _forget(self, kept: Kept) -> None:
        self._close_channel(kept)
        if self._kept.pop(kept.key, None) is not None:
            self.owner.keeper_closed(kept.key)

    def _end_orphans(self) -> bool:
        """Kill the agent's children that are neither nursery nor living keeper; True when none is left."""
        if not spawning.acquire(blocking=False):
            return False
        try:
            living = {kept.pid for kept in self._kept.values() if not kept.silent}
            living.add(self._nursery.pid if self._nursery else None)
            living |= own_children
            everything = processes.table()
            orphans = [
                process
                for process in everything.values()
                if process.parent == os.getpid() and process.pid not in living
            ]
            processes.kill([*orphans, *processes.descendants([orphan.pid for orphan in orphans], everything)])
            for orphan in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(orphan.pid, os.WNOHANG)
        finally:
            spawning.release()
        return not orphans


def sweep(mark: str, patience_s: float, clock: Callable[[], float], pause: Callable[[float], None]) -> list[int]:
    """End what an earlier agent of this node left; its keepers get a moment to do it themselves and write it down."""
    deadline = clock() + patience_s
    ended: list[int] = []
    while left := processes.marked(NODE_MARK, mark):
        everything = processes.table()
        keepers = [pid for pid in left if "muster.agent.run.nursery" in processes.command_line(pid)]
        # The keeper inside a container is known by its program: it carries the image's environment alone.
        parents = {everything[pid].parent for pid in left if pid in everything}
        keepers += [pid for pid in parents if "agent/run/container/inside.py" in processes.command_line(pid)]
        kept = {process.pid for process in processes.descendants(keepers, everything)} | set(keepers)
        if clock() >= deadline:
            kept = set()
        for pid in left:
            if pid not in kept:
                processes.send(pid, signal.SIGKILL)
                ended.append(pid)
        pause(0.01)
    return sorted(set(ended))
