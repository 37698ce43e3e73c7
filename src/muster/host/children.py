"""Child processes that exchange JSON with their parent, one value per line.

Requests go to the child's standard input, so that no secret shows in a process list; answers come from its standard
output. A child ends when its input does, so it never outlives its parent. Anything else that it prints goes to its
standard error: `Parent` redirects it before anything can be written between the answers.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from muster.errors import MusterError
from muster.host.files import write_all

log = logging.getLogger(__name__)

spawning = threading.RLock()
"""Held while a process starts or ends a child, so that it is never taken for an orphan and killed."""
own_children: set[int] = set()
"""Children that are not orphans, by process id. Changed while `spawning` is held."""

_LOOK_S = 0.1
_PIECE = 1 << 20


class Abandoned(MusterError):
    """The result is no longer wanted."""


class ChildEnded(Exception):
    """The child ended before it answered."""


class Child:
    """The parent's side: a started process, and messages both ways.

    One thread listens; any thread may send. It is one of `own_children` until it has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        errors: int | None = None,
        keep_lines: int = 0,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """`errors`: a descriptor for its error output (default: inherited); `keep_lines`: or keep its last lines."""
        self._process = start(
            command,
            environment=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if keep_lines else errors,
            pass_fds=pass_fds,
        )
        self._sending = threading.Lock()
        self._lines: deque[bytes] = deque()
        self._unread = b""
        self._last_lines: deque[str] = deque(maxlen=keep_lines)
        self._keeper: threading.Thread | None = None
        if keep_lines:
            self._keeper = threading.Thread(target=self._keep, name="last-words", daemon=True)
            self._keeper.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message to the child; ChildEnded when it can no longer receive."""
        assert self._process.stdin is not None
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self._process.stdin.write(data)
                self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise ChildEnded(str(error)) from error

    def receive(self, unwanted: threading.Event | None = None, silent: Callable[[], None] = lambda: None) -> Any:
        """The child's next message; ChildEnded when no more will come, Abandoned once it is unwanted.

        While nothing arrives and `unwanted` is given, `silent` is called from time to time.
        """
        while True:
            if unwanted is not None and unwanted.is_set():
                raise Abandoned("nobody waits for the answer any more")
            if not self._lines:
                if not self._read(unwanted):
                    silent()
                continue
            line = self._lines.popleft()
            try:
                return json.loads(line)
            except ValueError:
                # Printed before the child took over its output, by something that Python itself loads.
                log.info("process %d printed between its answers: %r", self.pid, line[:200])

    def messages(self, unwanted: threading.Event | None = None) -> Iterator[Any]:
        """Every message until the child ends."""
        while True:
            try:
                yield self.receive(unwanted)
            except ChildEnded:
                return

    def last_words(self) -> list[str]:
        """The last lines that it printed; all of them once it has ended."""
        if self._keeper is not None and self._process.poll() is not None:
            # A grandchild may still hold the other end.
            self._keeper.join(1.0)
        return list(self._last_lines)

    def close_input(self) -> None:
        """Close its input, which asks it to end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code, or None when it has not ended in time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self, grace_s: float = 0.0) -> int:
        """End it: by closing its input first, by force after the grace period. Returns its exit code."""
        if grace_s > 0:
            self.close_input()
        if grace_s <= 0 or self.wait(grace_s) is None:
            self._process.kill()
        return self._ended()

    def end_group(self) -> int:
        """Kill it with its whole process group; a tool that outlives it would go on writing."""
        end_group(self._process)
        return self._ended()

    def _ended(self) -> int:
        code = self._process.wait()
        with spawning:
            own_children.discard(self.pid)
        if self._keeper is not None:
            self._keeper.join(1.0)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        return code

    def _read(self, unwanted: threading.Event | None) -> bool:
        """Whether there was anything to read."""
        assert self._process.stdout is not None
        try:
            # A caller that may lose interest checks from time to time.
            if unwanted is not None and not select.select([self._process.stdout], [], [], _LOOK_S)[0]:
                return False
            data = os.read(self._process.stdout.fileno(), _PIECE)
        except (OSError, ValueError) as error:
            raise ChildEnded(str(error)) from error
        if not data:
            raise ChildEnded(f"process {self.pid} has closed its output")
        *lines, self._unread = (self._unread + data).split(b"\n")
        self._lines.extend(lines)
        return True

    def _keep(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._last_lines.append(line.decode(errors="replace").rstrip())


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child that leads its own session and is registered as no orphan; `end_group` ends it."""
    with spawning:
        process = subprocess.Popen(
            list(command),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            env=None if environment is None else dict(environment),
            start_new_session=True,
            pass_fds=pass_fds,
        )
        own_children.add(process.pid)
    return process


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child with its whole process group; a tool that outlives it would go on writing."""
    with spawning:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        own_children.discard(process.pid)
    # A sub-reaper inherits its children.
    with suppress(ChildProcessError):
        while os.waitpid(-process.pid, 0)[0]:
            pass
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


class Parent:
    """The child's side: receives requests, sends answers, and notices when the parent is gone."""

    def __init__(self, ended: Callable[[], None] = lambda: None, *, exit_after_s: float | None = None) -> None:
        """`ended` is called once when the parent is gone; with `exit_after_s` the process exits that long after."""
        self.gone = threading.Event()
        self._ended = ended
        self._exit_after_s = exit_after_s
        # Output of libraries and tools must not get between the answers.
        self._answers = os.dup(1)
        os.dup2(2, 1)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._noticing = threading.Lock()
        threading.Thread(target=self._listen, name="parent", daemon=True).start()

    def receive(self) -> Any:
        """The next request; ParentGone when the parent is gone."""
        request = self._requests.get()
        if request is _END:
            self._requests.put(_END)
            raise ParentGone
        return request

    def requests(self) -> Iterator[Any]:
        """Every request until the parent is gone."""
        while True:
            try:
                yield self.receive()
            except ParentGone:
                return

    def send(self, message: Any) -> None:
        """Send a message to the parent, from any thread; does nothing when the parent is gone."""
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                write_all(self._answers, data)
        except OSError:
            self._notice()

    def _listen(self) -> None:
        unread = b""
        # Not through `sys.stdin`: a thread that blocks in it makes Python's shutdown fail.
        while data := os.read(0, _PIECE):
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                self._requests.put(json.loads(line))
        self._notice()
        self._requests.put(_END)
        if self._exit_after_s is not None:
            # A read that hangs must not keep an abandoned process alive.
            time.sleep(self._exit_after_s)
            os._exit(1)

    def _notice(self) -> None:
        with self._noticing:
            if self.gone.is_set():
                return
            # First, so that a thread that sees `gone` also sees the effects.
            self._ended()
            self.gone.set()


class ParentGone(Exception):
    """The parent is gone; nobody waits for an answer."""


def end_own_group() -> None:
    """For `Parent(ended=…)` of a child that leads a session: kills the whole process group."""
    os.killpg(0, signal.SIGKILL)


_END = object()
