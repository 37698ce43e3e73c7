"""The keeper of an attempt whose ranks run in a container: starts it, relays messages, and leaves none behind.

Forked from the nursery in place of a plain keeper. The ranks' own keeper is process 1 inside and ends when the socket
from here closes. Standard library only and single-threaded.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from muster.agent.run.container.inside import SOCKET
from muster.agent.run.records import (
    Channel,
    Entry,
    LaunchContainer,
    SessionCommand,
    StopCommand,
    Value,
    entry_line,
    entry_of,
)
from muster.host import clock, processes

OVERDUE_S = 10.0
CLOSING_S = 3.0
_TOOL_S = 30.0
_PASS_S = 0.02
_REMOVALS = 5
_REMOVAL_PAUSE_S = 0.5
_TAIL_BYTES = 4096


class ContainerKeeper:
    """Looks after one container to its end."""

    def __init__(self, description: LaunchContainer, agent: socket.socket, wake: int) -> None:
        self._container = description
        self._log = os.path.join(description["root"], "container.log")  # noqa: PTH118
        self._journal = os.open(description["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._agent: Channel | None = Channel(agent)
        self._wake = wake
        self._inner: Channel | None = None
        self._listener: socket.socket | None = None
        self._engine = 0
        self._status: int | None = None
        self._held: list[StopCommand] = []
        """Commands of the agent that came before the inner keeper was connected."""
        self._overdue: float | None = None
        """When the container is ended from the node."""
        self._reason = ""
        self._ranks = description["ranks"]
        self._running: set[int] = set()
        self._seen: set[int] = set()
        self._ended = b""
        """The inner keeper's final entry."""
        self._tool_status = 0
        """How the engine's last command ended."""
        self._died_at: float | None = None
        """When the inner keeper died without one, before it was told to stop."""

    def run(self) -> None:
        self._send(entry_line("keeper", pid=os.getpid()))
        self._listen()
        self._start()
        while not self._reap():
            self._wait()
            self._pursue()
        # Read what the inner keeper sent before it ended.
        while self._inner is not None:
            self._read_inner()
        if not self._ended:
            self._explain()
        self._remove()
        self._end_rest()
        # Last: the attempt's folder may be removed as soon as the agent reads it.
        self._send(self._ended)

    def _listen(self) -> None:
        os.chdir(self._container["root"])
        Path(SOCKET).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(SOCKET)
        if os.getuid() == 0:
            # The keeper inside may run as another user.
            owner = os.stat(os.path.dirname(SOCKET))  # noqa: PTH116, PTH120
            os.chown(SOCKET, owner.st_uid, owner.st_gid)
        self._listener.listen(1)

    def _start(self) -> None:
        with open(self._log, "ab") as log:  # noqa: PTH123
            command, env = self._container["command"], self._container["env"]
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )
        self._engine = child.pid
        # It is reaped with all others, below.
        child.returncode = 0

    def _reap(self) -> bool:
        """Collect the dead; True when the engine's process is among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self._status is not None
            if pid == self._engine:
                self._status = status
            if pid == 0:
                return self._status is not None

    def _wait(self) -> None:
        sockets = [one for one in (self._agent, self._inner, self._listener) if one is not None]
        watched: list[int | socket.socket | Channel] = [self._wake, *sockets]
        now = time.monotonic()
        timeout = None if self._overdue is None else max(_PASS_S, self._overdue - now)
        ready, _, _ = select.select(watched, [], [], timeout)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._listener in ready:
            self._accept()
        # First, because it may have died before the agent sent anything.
        if self._inner in ready:
            self._read_inner()
        if self._agent in ready:
            self._read_agent()

    def _accept(self) -> None:
        assert self._listener is not None
        self._inner = Channel(self._listener.accept()[0])
        self._listener.close()
        self._listener = None
        if self._agent is None:
            # There is no agent left to work for.
            self._close_inner()
        for command in self._held:
            self._relay(command)

    def _read_agent(self) -> None:
        assert self._agent is not None
        commands: list[StopCommand | SessionCommand] | None = self._agent.receive()
        if commands is None:
            self._agent = None
            self._reason = self._reason or "agent_lost"
            self._close_inner()
            self._end_by(time.monotonic() + CLOSING_S)
            return
        for command in commands:
            if "session" in command:
                self._relay_session(command)
                continue
            self._reason = self._reason or command["reason"]
            self._end_by(time.monotonic() + command["grace_s"] + OVERDUE_S)
            if self._listener is not None:
                self._held.append(command)
            else:
                self._relay(command)

    def _relay_session(self, command: SessionCommand) -> None:
        """Have the inner keeper begin it: the descriptor is valid there too."""
        descriptor = self._agent.take_descriptor() if self._agent is not None else None
        if descriptor is None:
            return
        if self._inner is not None:
            self._inner.send(json.dumps(command).encode() + b"\n", descriptor)
        os.close(descriptor)

    def _relay(self, command: StopCommand) -> None:
        if self._inner is not None and not self._inner.send(json.dumps(command).encode() + b"\n"):
            self._close_inner()

    def _read_inner(self) -> None:
        assert self._inner is not None
        values = self._inner.receive()
        if values is None:
            if not self._ended and not self._reason:
                self._died_at = clock.now()
            self._close_inner()
            return
        for entry in map(entry_of, values):
            # Ranks may have taken over their keeper: what is not an entry, or of no rank here, is not relayed.
            if entry is not None and entry.get("rank", self._ranks[0]) in self._ranks:
                self._note(entry)

    def _note(self, entry: Entry) -> None:
        if entry["kind"] == "keeper":
            return
        if entry["kind"] == "started":
            self._seen.add(entry["rank"])
            self._running.add(entry["rank"])
        elif entry["kind"] == "refused":
            self._seen.add(entry["rank"])
        elif entry["kind"] == "exited":
            self._running.discard(entry["rank"])
        line = json.dumps(entry).encode() + b"\n"
        self._write(line)
        if entry["kind"] == "ended":
            self._ended = line
        else:
            self._send(line)

    def _end_by(self, moment: float) -> None:
        self._overdue = moment if self._overdue is None else min(self._overdue, moment)

    def _pursue(self) -> None:
        if self._overdue is not None and time.monotonic() >= self._overdue:
            self._overdue = time.monotonic() + OVERDUE_S
            if self._container["remove"]:
                self._tool(self._container["remove"])
            else:
                # A sandbox, which is only processes, ends with them.
                processes.kill(processes.descendants([os.getpid()], processes.table()))

    def _explain(self) -> None:
        """The container ended without a final entry of its keeper: record why, as far as it can be known."""
        oom = self._tool(self._container["inspect"]).strip().lower() == "true"
        expected = bool(self._reason) and self._died_at is None
        at = clock.now() if self._died_at is None else self._died_at
        for rank in sorted(self._running):
            self._record(
                "exited", at=at, rank=rank, exit_code=None, signal=int(signal.SIGKILL), expected=expected,
                oom_killed=oom, max_rss_kb=0, core_dumped=False,
            )  # fmt: skip
        if not self._seen and not expected:
            message = f"the {self._container['kind']} did not start: {said_last(self._log)}"
            self._record("refused", rank=min(self._container["ranks"]), message=message, exit_code=126)
        self._ended = self._record("ended", reason=self._reason or "rank_failed")

    def _remove(self) -> None:
        """Remove the container; an engine whose own processes died may need to be asked twice."""
        for _ in range(_REMOVALS):
            self._tool(self._container["remove"])
            if self._tool_status == 0 or not self._tool(self._container["inspect"]).strip():
                return
            time.sleep(_REMOVAL_PAUSE_S)

    def _tool(self, command: list[str]) -> str:
        """What a command of the engine prints; it must not delay the end."""
        self._tool_status = 0
        if not command:
            return ""
        self._tool_status = 1
        with open(self._log, "ab") as log:  # noqa: PTH123
            try:
                env = self._container["env"]
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=env, timeout=_TOOL_S
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                log.write(f"muster: {command[0]} {command[1]}: {error}\n".encode())
                return ""
        self._tool_status = done.returncode
        return done.stdout.decode(errors="replace")

    def _end_rest(self) -> None:
        """End processes that the engine left below this one."""
        patience = time.monotonic() + CLOSING_S
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    # The engine gets a moment to clean up by itself.
                    if time.monotonic() > patience:
                        processes.kill(processes.descendants([os.getpid()], processes.table()))
                    select.select([], [], [], _PASS_S)
            except ChildProcessError:
                return

    def _close_inner(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None

    def _record(self, kind: str, **data: Value) -> bytes:
        line = entry_line(kind, **data)
        self._write(line)
        if kind != "ended":
            self._send(line)
        return line

    def _write(self, line: bytes) -> None:
        """Write to the journal, which ranks cannot reach."""
        try:
            os.write(self._journal, line)
        except OSError:
            pass

    def _send(self, line: bytes) -> None:
        if self._agent is not None:
            self._agent.send(line)


def said_last(log: str) -> str:
    """The last lines that the engine printed, as one."""
    try:
        text = Path(log).read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return "it printed nothing"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-3:]) or "it printed nothing"
