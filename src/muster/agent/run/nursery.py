"""The nursery of a node: forks keepers, and ends what a dead keeper left. Standard library only.

Its last argument is the descriptor of a socket to the agent. One per agent. A keeper's orphans become its children,
because it is the next sub-reaper above; so a child that is not a keeper must be ended.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path

from muster.agent.run.container.keeper import ContainerKeeper
from muster.agent.run.keeper import Keeper
from muster.agent.run.records import Channel
from muster.host import clock, processes

_PASS_S = 0.01


class Nursery:
    def __init__(self, agent: socket.socket) -> None:
        self._agent = Channel(agent)
        self._agent_gone = False
        self._keepers: dict[int, str] = {}
        self._lost: list[tuple[int, int]] = []
        """Keepers that died before their time: (pid, wait status); reported when their orphans are gone."""
        self._wake, self._wake_write = os.pipe()
        self._watch_children()

    def run(self) -> None:
        while not (self._agent_gone and not self._keepers and not self._lost):
            watched: list[int | Channel] = [self._wake] if self._agent_gone else [self._wake, self._agent]
            ready, _, _ = select.select(watched, [], [], _PASS_S if self._lost else None)
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._agent in ready:
                self._serve()
            self._reap()
            if self._lost:
                self._end_orphans()

    def _watch_children(self) -> None:
        for end in (self._wake, self._wake_write):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def _serve(self) -> None:
        """Serve one request: the path of the launch file, with the keeper's socket and the port locks."""
        try:
            # The kernel does not merge two messages that carry descriptors.
            data, descriptors, _, _ = socket.recv_fds(self._agent.socket, 65536, 64)
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._agent_gone = True
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        request = json.loads(data)
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(failed=request["key"], message=f"no keeper could be started: {error}")
        else:
            if pid == 0:
                self._become_keeper(request["launch"], descriptors)
            self._keepers[pid] = request["key"]
            self._tell(born=request["key"], pid=pid)
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_keeper(self, launch_file: str, descriptors: list[int]) -> None:
        """In the child: never returns. Locks of ports and the like stay open until it exits."""
        try:
            self._agent.close()
            for end in (self._wake, self._wake_write):
                os.close(end)
            self._wake, self._wake_write = os.pipe()
            self._watch_children()
            # The clock may have been set since the nursery started; from here on the attempt's times are durations.
            clock.CLOCK.adopt(clock.CLOCK.jump_s())
            os.setsid()
            processes.become_subreaper()
            processes.set_name("muster-keeper")
            agent = socket.socket(fileno=descriptors[0])
            launch, container = Path(launch_file), Path(launch_file).with_name("container.json")
            if container.exists():
                ContainerKeeper(json.loads(container.read_bytes()), agent, self._wake).run()
            else:
                Keeper(json.loads(launch.read_bytes()), agent, self._wake).run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._keepers.pop(pid, None) is None:
                continue
            if status == 0:
                self._tell(gone=pid, status=0)
            else:
                self._lost.append((pid, status))

    def _end_orphans(self) -> None:
        """Kill every child that is not a keeper, with its descendants; then report it."""
        everything = processes.table()
        orphans = [
            process
            for process in everything.values()
            if process.parent == os.getpid() and process.pid not in self._keepers and not process.dead
        ]
        if not orphans:
            for pid, status in self._lost:
                self._tell(gone=pid, status=status)
            self._lost.clear()
            return
        below = processes.descendants([process.pid for process in orphans], everything)
        processes.kill([*orphans, *below])

    def _tell(self, **message: str | int) -> None:
        self._agent.send(json.dumps(message).encode() + b"\n")


def main() -> None:
    agent = socket.socket(fileno=int(sys.argv[-1]))
    agent.set_inheritable(False)
    # The agent decides when this ends, not whoever signals the whole session or step.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
    processes.set_name("muster-nursery")
    # Collecting garbage would touch, and so copy, the pages that every keeper shares with this process.
    gc.disable()
    gc.freeze()
    Nursery(agent).run()
