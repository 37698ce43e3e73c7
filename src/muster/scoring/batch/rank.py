"""One rank of a batch scoring: keeps the process with the model, feeds it, and retries what failed."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from muster.scoring import frames
from muster.scoring.batch.work import Batch, Settings
from muster.scoring.script import INIT_FAILED

_WAIT_S = 0.05
_AT_ONCE = 2
"""One is scored while the next is being read."""
_BAD_STARTS = 3
_SILENT_S = 30.0
"""A rank that lost rank 0 waits this long to be ended, so that it is not taken for the culprit."""


class InitFailed(Exception):
    """The model could not be loaded: another try does not help."""


@dataclass
class Keeper:
    """The process that holds the model, restarted when it dies."""

    settings: Settings
    root: str
    form: str
    model: str
    process: Optional["subprocess.Popen[bytes]"] = None
    connection: Optional[socket.socket] = None
    ready: bool = False

    def start(self) -> None:
        ours, its = socket.socketpair()
        arguments = [str(its.fileno()), self.settings.dump(), self.root, self.form, self.model]
        command = [sys.executable, "-m", "muster.scoring.batch.model", *arguments]
        self.process = subprocess.Popen(command, pass_fds=[its.fileno()])
        its.close()
        self.connection, self.ready = ours, False

    def send(self, message: frames.Message) -> None:
        assert self.connection is not None
        frames.send(self.connection, message)

    def receive(self, wait_s: float) -> Optional[frames.Message]:
        """The next message, or None if none came in time. Raises Closed when the process has ended."""
        assert self.connection is not None
        if not select.select([self.connection], [], [], max(0.0, wait_s))[0]:
            return None
        return frames.receive(self.connection)

    def end(self) -> str:
        """Make sure that the process is gone; returns in words how it ended."""
        assert self.process is not None and self.connection is not None
        self.connection.close()
        if self.process.poll() is None:
            try:
                self.process.wait(1.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
        code = self.process.wait()
        if code < 0:
            return "the process with the model was ended by {}".format(signal.Signals(-code).name)
        return "the process with the model ended with exit code {}".format(code)


@dataclass
class Rank:
    """The work of one rank."""

    keeper: Keeper
    coordinator: socket.socket
    settings: Settings
    under_way: List[Batch] = field(default_factory=list)
    """In the order in which the process received them."""
    tries: Dict[int, int] = field(default_factory=dict)
    began: Optional[Tuple[int, float]] = None
    """The mini-batch that is being scored, and since when."""
    bad_starts: int = 0

    def work(self) -> str:
        """Score until nothing is left; returns why the whole scoring was given up, or an empty text."""
        self.keeper.start()
        while True:
            answer = self._fill()
            if answer is not None and not self.under_way:
                self._let_go()
                return frames.text(answer[1])
            if not self.under_way and self.keeper.ready:
                time.sleep(_WAIT_S)
                continue
            self._listen()

    def _fill(self) -> Optional[frames.Message]:
        """Ask for work as long as there is room; returns the answer that says that there is none left."""
        while len(self.under_way) < _AT_ONCE:
            frames.send(self.coordinator, ["next"])
            answer = frames.receive(self.coordinator)
            if answer[0] == "done":
                # The work still under way here belongs to a scoring that was given up.
                self.under_way.clear()
                return answer
            if answer[0] != "batch":
                return None
            self._hand_over(Batch.of(answer[1:]))
        return None

    def _hand_over(self, batch: Batch) -> None:
        self.under_way.append(batch)
        try:
            self.keeper.send(batch.message())
        except OSError:
            pass  # it has died, which the next read shows

    def _listen(self) -> None:
        limit = None if self.began is None else self.began[1] + self.settings.timeout_s - time.monotonic()
        try:
            message = self.keeper.receive(_WAIT_S if limit is None else min(limit, 1.0))
        except frames.Closed:
            self._recover(None)
            return
        if message is None:
            if limit is not None and limit <= 0:
                self._recover("it took longer than {:g} s".format(self.settings.timeout_s))
            return
        self._heard(message)

    def _heard(self, message: frames.Message) -> None:
        kind = message[0]
        if kind == "ready":
            self.keeper.ready = True
        elif kind == "begin":
            self.began = (frames.number(message[1]), time.monotonic())
        elif kind in ("scored", "failed") and self.under_way:
            number = frames.number(message[1])
            batch = next(item for item in self.under_way if item.number == number)
            self.under_way.remove(batch)
            # The next one may have started before this result was sent.
            if self.began is not None and self.began[0] == number:
                self.began = None
            if kind == "scored":
                self._tell(message)
            else:
                self._failed(batch, frames.text(message[2]))

    def _failed(self, batch: Batch, why: str) -> None:
        """Try a mini-batch once more, or give it up."""
        tried = self.tries[batch.number] = self.tries.get(batch.number, 0) + 1
        if tried > self.settings.max_retries:
            self._tell(["failed", batch.number, why])
            return
        print(
            "muster: mini-batch {} failed, try {} of {}: {}".format(
                batch.number, tried, self.settings.max_retries + 1, why
            ),
            file=sys.stderr,
        )
        self._hand_over(batch)

    def _tell(self, message: frames.Message) -> None:
        frames.send(self.coordinator, message)

    def _recover(self, why: Optional[str]) -> None:
        """Restart the process; only the mini-batch that was being scored counts as tried."""
        assert self.keeper.process is not None
        if why is not None:
            self.keeper.process.kill()
        said = self.keeper.end()
        if not self.keeper.ready and self.keeper.process.returncode == INIT_FAILED:
            raise InitFailed(said)
        number = None if self.began is None else self.began[0]
        scored = [batch for batch in self.under_way if batch.number == number]
        waiting = [batch for batch in self.under_way if batch.number != number]
        self.bad_starts = 0 if self.keeper.ready else self.bad_starts + 1
        self.under_way, self.began = [], None
        if self.bad_starts >= _BAD_STARTS:
            raise InitFailed("{} before it was ready, {} times in a row".format(said, self.bad_starts))
        self.keeper.start()
        for batch in waiting:
            self._hand_over(batch)
        for batch in scored:
            self._failed(batch, why or said)

    def _let_go(self) -> None:
        """Let the script shut down, if the process is still healthy."""
        try:
            self.keeper.send([])
            deadline = time.monotonic() + self.settings.timeout_s
            while time.monotonic() < deadline:
                message = self.keeper.receive(1.0)
                if message is not None and message[0] == "bye":
                    break
        except OSError:
            pass
        self.keeper.end()


def reach(address: str, port: int, rank: int, patience_s: float = 600.0) -> socket.socket:
    """A connection to rank 0, which may start later than this rank."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            connection = socket.create_connection((address, port), timeout=10.0)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_WAIT_S)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frames.send(connection, [rank])
    return connection


def wait_to_be_ended() -> None:
    """Rank 0 is gone: Muster notices that and ends this rank too."""
    print("muster: the connection to rank 0 ended", file=sys.stderr)
    time.sleep(_SILENT_S)


def output_path() -> str:
    return os.environ.get("MUSTER_OUTPUT_result", "outputs")
