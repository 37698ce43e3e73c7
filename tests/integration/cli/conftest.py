"""Running the real command line against a real server, with and without a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MUSTER = [sys.executable, "-m", "muster.cli"]
DEADLINE_S = 60.0


class Cli:
    """The command line in a workspace folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        settings = {"capture_output": True, "text": True, "cwd": self.folder, "timeout": DEADLINE_S, "check": False}
        return subprocess.run([*MUSTER, *args], **{**settings, **options})

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": self.folder}
        return subprocess.Popen([*MUSTER, *args], preexec_fn=_heed_hangups, **{**settings, **options})

    def script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def run_id(self, *args: str) -> str:
        done = self("run", *args, "--detach")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def _heed_hangups() -> None:
    """As from a shell: the tests themselves may have been started with nohup, which is inherited."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Terminal:
    """A command on a terminal of its own, and what it drew there."""

    def __init__(self, folder: Path, args: tuple[str, ...], environment: dict[str, str]) -> None:
        self.output = b""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            _heed_hangups()
            os.chdir(folder)
            os.execve(MUSTER[0], [*MUSTER, *args], {**os.environ, "TERM": "xterm-256color", **environment})
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self._ended: int | None = None

    def until(self, pattern: str) -> None:
        """Read until the pattern was drawn."""
        self._read(lambda: re.search(pattern, self.text) is not None, f"{pattern!r}")

    def press(self, key: bytes) -> None:
        os.write(self._fd, key)

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        self._read(lambda: self._ended is not None, "its end")
        assert self._ended is not None
        return os.waitstatus_to_exitcode(self._ended)

    def hang_up(self) -> None:
        """Close the terminal."""
        os.close(self._fd)
        self._fd = -1
        _, self._ended = os.waitpid(self.pid, 0)

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    def close(self) -> None:
        if self._ended is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        if self._fd >= 0:
            os.close(self._fd)

    def _read(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come; drawn so far:\n{self.text}")
            readable, _, _ = select.select([self._fd], [], [], 0.1)
            try:
                piece = os.read(self._fd, 65536) if readable else b""
            except OSError:  # the other end is closed
                piece = b""
            self.output += piece
            if not piece and self._ended is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._ended = status if pid else None
                if self._ended is not None and not condition():
                    pytest.fail(f"{what} did not come before the command ended; drawn:\n{self.text}")


@pytest.fixture
def cli(workspace: Path) -> Cli:
    return Cli(workspace)


@pytest.fixture
def terminal(workspace: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts commands on terminals of their own."""
    opened: list[Terminal] = []

    def start(*args: str, **environment: str) -> Terminal:
        opened.append(Terminal(workspace, args, environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """Polls a condition until it is true, with a deadline."""

    def wait(condition: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() > deadline:
                pytest.fail(f"it did not come true within {timeout_s:g} s")
            time.sleep(0.02)
        return value

    return wait
