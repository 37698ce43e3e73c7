"""All keepers of a node: requests them from the nursery, reads their reports, and knows when all of one is gone.

Runs in the agent's loop. A living nursery ends what a dead keeper left; keepers that outlive their nursery become
children of the agent, which then does the same for them. A process can be stopped as well as killed: one that misses
its deadline is killed from here, a keeper for its nursery to clean up, the nursery for the agent.
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
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import muster.agent
from muster.agent.run.records import Channel, Entry, SessionCommand, StopCommand
from muster.agent.run.variables import NODE_MARK
from muster.host import processes
from muster.host.children import own_children, spawning
from muster.wire.node.agents import AttemptKey

log = logging.getLogger(__name__)

_NURSERY_S = 6.0
"""How long a nursery may take to start a keeper, or to end what a dead one left; both take milliseconds."""
_STOPPED_S = 3.0
"""Extra time after the grace period, for a keeper that was stopped (SIGSTOP)."""
_BUSY_S = 90.0
"""Extra time after the grace period, for a running keeper: a container takes a while to remove."""
_LOOK_S = 1.0
_LAUNCHES = 3
"""How often an attempt is launched, where nurseries died before they started its keeper."""

# Without site-packages it is small and starts in 20 ms.
_NURSERY = "import sys; sys.path.append(sys.argv[1]); from muster.agent.run.nursery import main; main()"


class Owner(Protocol):
    """The owner of the keepers; called in the agent's loop."""

    def keeper_said(self, key: AttemptKey, entry: Entry) -> None: ...

    def keeper_closed(self, key: AttemptKey) -> None:
        """Called once per keeper, when neither it nor anything below it is alive."""


@dataclass
class Kept:
    """One keeper."""

    key: AttemptKey
    channel: Channel
    pid: int | None = None
    generation: int = 0
    """The generation of the nursery that forked it."""
    launch: bytes = b""
    """The request to the nursery, with descriptors for the keeper; kept until it has started."""
    locks: list[int] = field(default_factory=list)
    launches: int = 1
    nursery_due: float = float("inf")
    """Deadline for the nursery to start it, or to end what it left."""
    stop_due: float = float("inf")
    """Deadline for it to end its ranks after a stop command."""
    silent: bool = False
    """Its channel is closed: it has ended or died."""

    @property
    def told_to_stop(self) -> bool:
        return self.stop_due < float("inf")

    def born(self, pid: int) -> None:
        self.pid, self.nursery_due = pid, float("inf")
        self.drop_locks()

    def drop_locks(self) -> None:
        while self.locks:
            os.close(self.locks.pop())


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
    _looked: float = 0.0
    """When the deadlines were last checked."""

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
        self.selector.register(self._channel, selectors.EVENT_READ, self._read_nursery)

    def launch(self, key: AttemptKey, launch_file: Path, locks: Sequence[int]) -> None:
        """Start the ranks; the keeper gets copies of the descriptors."""
        request = json.dumps({"key": f"{key[0]}.{key[1]}", "launch": str(launch_file)}).encode()
        ours, theirs = socket.socketpair()
        kept = self._kept[key] = Kept(key, Channel(ours), launch=request, locks=[os.dup(lock) for lock in locks])
        self._ask_nursery(kept, theirs)

    def _ask_nursery(self, kept: Kept, theirs: socket.socket) -> None:
        kept.generation, kept.nursery_due = self._generation, time.monotonic() + _NURSERY_S
        self.selector.register(kept.channel, selectors.EVENT_READ, lambda: self._read_keeper(kept))
        try:
            assert self._channel is not None
            descriptors = [theirs.fileno(), *kept.locks]
            # Does not block on a stopped nursery: it is replaced after its deadline.
            socket.send_fds(self._channel.socket, [kept.launch], descriptors, socket.MSG_DONTWAIT)
        except OSError as error:
            # Closing the keeper's end reports the failure for this attempt.
            log.warning("the nursery did not accept the request of %s: %s", kept.key, error)
        theirs.close()

    def stop(self, key: AttemptKey, grace_s: float, reason: str) -> None:
        kept = self._kept.get(key)
        if kept is None or kept.silent:
            return
        kept.stop_due = min(kept.stop_due, time.monotonic() + grace_s)
        command: StopCommand = {"grace_s": grace_s, "reason": reason}
        if not kept.channel.send(json.dumps(command).encode() + b"\n"):
            log.info("the keeper of %s is not listening", key)

    def enter(self, key: AttemptKey, command: SessionCommand, tunnel: int) -> bool:
        """Begin a session at the other end of a tunnel, of which the keeper gets its own descriptor."""
        kept = self._kept.get(key)
        if kept is None or kept.silent or kept.told_to_stop:
            return False
        return kept.channel.send(json.dumps(command).encode() + b"\n", tunnel)

    def tend(self) -> bool:
        """Enforce deadlines and end orphans of a dead nursery; True when it should be called again soon."""
        self._enforce_deadlines(time.monotonic())
        orphaned = [kept for kept in self._kept.values() if kept.generation < self._generation]
        lost = [kept for kept in orphaned if kept.silent and not self._launched_again(kept)]
        if not lost:
            return False
        # A keeper that has not reported its pid yet must not be taken for an orphan.
        if any(kept.pid is None and not kept.silent for kept in self._kept.values()):
            return True
        if not self._end_orphans():
            return True
        for kept in lost:
            self._forget(kept)
        return False

    def _enforce_deadlines(self, now: float) -> None:
        """Kill keepers and a nursery that missed their deadlines; a stopped one is continued first."""
        if now < self._looked + _LOOK_S:
            return
        self._looked = now
        for kept in self._kept.values():
            stopped = kept.pid is not None and not kept.silent and _is_stopped(kept.pid)
            if stopped and now < kept.stop_due:
                log.warning("the keeper of %s was stopped (SIGSTOP), and is continued", kept.key)
                processes.send(kept.pid or 0, signal.SIGCONT)
            elif kept.pid and not kept.silent and now > kept.stop_due + (_STOPPED_S if stopped else _BUSY_S):
                log.error("the keeper of %s did not end its ranks in time, and is killed", kept.key)
                processes.send(kept.pid, signal.SIGKILL)
        current = [kept for kept in self._kept.values() if kept.generation == self._generation]
        overdue = [kept for kept in current if now > kept.nursery_due]
        if overdue and self._nursery is not None:
            log.error("the nursery did not answer for %s in time, and is killed", overdue[0].key)
            # Its channel closes, and a new one takes over.
            self._nursery.kill()

    def _launched_again(self, kept: Kept) -> bool:
        """Whether a keeper that its nursery never started is requested again; a started one would have reported."""
        if kept.pid is not None or kept.told_to_stop or kept.launches >= _LAUNCHES:
            return False
        log.warning("the keeper of %s is requested again", kept.key)
        ours, theirs = socket.socketpair()
        kept.channel, kept.silent, kept.launches = Channel(ours), False, kept.launches + 1
        self._ask_nursery(kept, theirs)
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Close the channels: keepers and nursery then end by themselves."""
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
                log.warning("the nursery did not end in time, and is killed with all that is below it")
                below = processes.descendants([self._nursery.pid], processes.table())
                self._nursery.kill()
                processes.kill(below)

    def _read_nursery(self) -> None:
        assert self._channel is not None
        messages = self._channel.receive()
        if messages is None:
            self._replace_nursery()
            return
        for message in messages:
            if "born" in message:
                run, _, attempt = message["born"].rpartition(".")
                if (run, int(attempt)) in self._kept:
                    self._kept[run, int(attempt)].born(message["pid"])
            elif "gone" in message:
                self._gone(message["gone"])
            elif "failed" in message:
                log.error("%s: %s", message["failed"], message["message"])
                run, _, attempt = message["failed"].rpartition(".")
                if (run, int(attempt)) in self._kept:
                    self._forget(self._kept[run, int(attempt)])

    def _gone(self, pid: int) -> None:
        for kept in list(self._kept.values()):
            if kept.pid == pid and kept.generation == self._generation:
                # Read what it sent before it ended.
                while not kept.silent:
                    self._read_keeper(kept)
                self._forget(kept)

    def _replace_nursery(self) -> None:
        assert self._channel is not None and self._nursery is not None
        self.selector.unregister(self._channel)
        self._channel.close()
        self._nursery.kill()
        status = self._nursery.wait()
        log.error("the nursery ended (%s); a new one is started", status)
        self.start()

    def _read_keeper(self, kept: Kept) -> None:
        entries: list[Entry] | None = kept.channel.receive()
        if entries is None:
            self._close_channel(kept)
            return
        for entry in entries:
            if entry["kind"] == "keeper":
                kept.born(entry["pid"])
            self.owner.keeper_said(kept.key, entry)

    def _close_channel(self, kept: Kept) -> None:
        if not kept.silent:
            kept.silent, kept.nursery_due = True, time.monotonic() + _NURSERY_S
            self.selector.unregister(kept.channel)
            kept.channel.close()

    def _forget(self, kept: Kept) -> None:
        self._close_channel(kept)
        kept.drop_locks()
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


def _is_stopped(pid: int) -> bool:
    """Whether it was stopped by a signal; a debugger's stop looks different."""
    process = processes.read(pid)
    return process is not None and process.state == "T"


def sweep(mark: str, patience_s: float, clock: Callable[[], float], pause: Callable[[float], None]) -> list[int]:
    """End what an earlier agent of this node left; its keepers get a moment to do it themselves and record it."""
    deadline = clock() + patience_s
    ended: list[int] = []
    while left := processes.marked(NODE_MARK, mark):
        everything = processes.table()
        keepers = [pid for pid in left if "muster.agent.run.nursery" in processes.command_line(pid)]
        # The keeper inside a container is known by its program: it has only the image's environment.
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
