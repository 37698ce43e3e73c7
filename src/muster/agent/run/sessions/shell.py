"""A shell, or one command, with a rank's environment, in its folder: with a terminal of its own, or with pipes."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios

from muster.agent.run.records import SessionCommand
from muster.agent.run.sessions.carrier import Carrier, Trouble
from muster.agent.run.sessions.session_rank import SessionRank
from muster.host import frames, processes
from muster.host.streams import End, FileEnd

_SHELLS = ("/bin/bash", "/bin/sh")
_LAST_BYTES_S = 3600.0


def carry(command: SessionCommand, carrier: Carrier, target: SessionRank) -> None:
    """Run it to its end, or until the person leaves."""
    session = _Shell(command, target)
    try:
        if carrier.run(session.sources, session.sink, session.control, session.is_over):
            carrier.say_exit(session.code)
            carrier.finish(_LAST_BYTES_S)
        else:
            session.hang_up()
    except Trouble:
        session.hang_up()
        raise


class _Shell:
    def __init__(self, command: SessionCommand, target: SessionRank) -> None:
        argv = list(command["command"]) or [shell_of(target.env)]
        env = dict(target.env)
        self._master = -1
        self._ended = False
        if command["terminal"] is not None:
            rows, columns, kind = command["terminal"]
            env["TERM"] = str(kind) or "xterm"
            self._start_on_terminal(argv, env, target.cwd, int(rows), int(columns))
        else:
            self._start_on_pipes(argv, env, target.cwd)

    def control(self, kind: bytes, payload: memoryview) -> None:
        if kind == frames.WINDOW and self._master >= 0:
            _resize(self._master, *frames.window_of(payload))
        elif kind == frames.END:
            self.sink.finish()

    def is_over(self) -> bool:
        """Whether it has ended; then its leftovers are ended too, so that its output ends."""
        if not self._ended and self._process.poll() is not None:
            self._ended = True
            processes.kill(processes.descendants([os.getpid()], processes.table()))
        return self._ended

    @property
    def code(self) -> int:
        """The exit code, as a shell would report it."""
        code = self._process.returncode or 0
        return 128 - code if code < 0 else code

    def hang_up(self) -> None:
        """Send SIGHUP, as a closed terminal does."""
        processes.send(self._process.pid, signal.SIGHUP)

    def _start_on_terminal(self, argv: list[str], env: dict[str, str], cwd: str, rows: int, columns: int) -> None:
        self._master, slave = os.openpty()
        _resize(self._master, rows, columns)
        try:
            self._process = _started(argv, env, cwd, (slave, slave, slave), terminal=True)
        finally:
            os.close(slave)
        self.sink: End = FileEnd(self._master, is_terminal=True)
        self.sources: dict[bytes, End] = {frames.DATA: self.sink}

    def _start_on_pipes(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        pipe = subprocess.PIPE
        self._process = _started(argv, env, cwd, (pipe, pipe, pipe), terminal=False)
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.sink = FileEnd(os.dup(process.stdin.fileno()))
        process.stdin.close()
        self.sources = {
            frames.DATA: FileEnd(process.stdout.fileno()),
            frames.ERRORS: FileEnd(process.stderr.fileno()),
        }


def _started(
    argv: list[str], env: dict[str, str], cwd: str, ends: tuple[int, int, int], terminal: bool
) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:
        processes.die_with_parent(parent)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    stdin, stdout, stderr = ends
    try:
        return subprocess.Popen(
            argv,
            bufsize=0,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=prepare,
        )
    except OSError as error:
        if error.filename == cwd:
            raise Trouble(f"the rank's folder {cwd} cannot be entered: {error.strerror}") from error
        raise Trouble(f"{argv[0]} cannot be run here: {error.strerror}") from error
    except ValueError as error:
        raise Trouble(f"{argv[0]} cannot be run here: {error}") from error


def shell_of(env: dict[str, str]) -> str:
    """The person's own shell if it exists here, otherwise one that every system has."""
    for path in (env.get("SHELL", ""), *_SHELLS):
        if path and os.access(path, os.X_OK):
            return path
    return _SHELLS[-1]


def _resize(terminal: int, rows: int, columns: int) -> None:
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    except OSError:
        pass
