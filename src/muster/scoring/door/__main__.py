"""`python -m muster.scoring.door`: holds an endpoint's address, and keeps the process that answers there."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import List, Mapping, NamedTuple, Optional, Union

from muster.scoring.door.table import Table, parse
from muster.scoring.door.worker import NO_LIBRARIES
from muster.scoring.link import Link, Unreachable
from muster.scoring.listening import keep_open_to_all, listener_on
from muster.scoring.serve.member import REPORT_S, first_orders

_WAIT_S = 20.0
_AGAIN_S = 0.5
_POLL_S = 0.05
_GRACE_S = 27.0
_BAD_STARTS = 20


@dataclass
class Worker:
    """A process at the front door, and the line to it."""

    process: "subprocess.Popen[bytes]"
    control: socket.socket
    began: float
    heard: bytes = b""


class Said(NamedTuple):
    """What the process that answers tells of itself."""

    seen: int
    """The version of the table that it goes by."""
    open: Mapping[str, int]
    figures: List[Mapping[str, Union[str, float, Mapping[str, int]]]]


class Door:
    """One endpoint's address."""

    def __init__(self, link: Link, attempt: int, text: bytes) -> None:
        self._link = link
        self._attempt = attempt
        self._text, self._table = text, parse(json.loads(text))
        self._listener = _listener(self._table)
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._said = Said(0, {}, [])
        self._restarts = 0
        self.ending = False
        self._current = self._start()
        self._next = self._start()
        self._send_table()

    def work(self) -> int:
        """Until it is told to end; returns the exit code."""
        port = self._listener.getsockname()[1]
        print("endpoint {} answers on http://{}:{}/score".format(self._table.endpoint, self._table.host, port))
        for work in (self._follow, self._report):
            threading.Thread(target=work, name=work.__name__, daemon=True).start()
        bad = 0
        while not self.ending:
            self._read()
            code = self._current.process.poll()
            if code is None:
                continue
            print("muster: the front door's process ended with {}; another takes over".format(code), file=sys.stderr)
            if code == NO_LIBRARIES:
                return code
            bad = bad + 1 if time.monotonic() - self._current.began < 2 else 0
            if bad >= _BAD_STARTS:
                return 1
            self._restarts += 1
            with self._lock:
                self._current, self._next = self._next, self._start()
            self._send_table()
        self._end()
        return 0

    def _start(self) -> Worker:
        ours, its = socket.socketpair()
        handed = [self._listener.fileno(), its.fileno()]
        command = [sys.executable, "-m", "muster.scoring.door.worker", *map(str, handed)]
        process = subprocess.Popen(command, pass_fds=handed)
        its.close()
        return Worker(process, ours, time.monotonic())

    def _send_table(self) -> None:
        with self._lock:
            try:
                self._current.control.sendall(self._text + b"\n")
            except OSError:
                pass  # it has just died: the next one gets it

    def _read(self) -> None:
        worker = self._current
        with selectors.DefaultSelector() as selector:
            selector.register(worker.control, selectors.EVENT_READ)
            if not selector.select(_POLL_S):
                return
        try:
            piece = worker.control.recv(1 << 20)
        except OSError:
            piece = b""
        if not piece:
            time.sleep(_POLL_S / 5)
            return
        *lines, worker.heard = (worker.heard + piece).split(b"\n")
        if lines:
            try:
                said = Said(**json.loads(lines[-1]))
            except ValueError:
                return  # cut off, because nobody read for a while
            if said.seen != self._said.seen:
                self._news.set()
            self._said = said

    def _follow(self) -> None:
        """In a thread: wait for other tables. While the server is away, the last one holds."""
        while True:
            try:
                what = "serving/routes?seen={}&wait_s={:g}".format(self._table.version, _WAIT_S)
                found = self._link.call("GET", what, wait_s=_WAIT_S)
            except Unreachable:
                time.sleep(_AGAIN_S)
                continue
            if found["version"] != self._table.version:
                self._text, self._table = json.dumps(found).encode(), parse(found)
                self._send_table()

    def _report(self) -> None:
        while True:
            self._news.wait(REPORT_S)
            self._news.clear()
            port = self._listener.getsockname()[1]
            said = self._said
            figures = [{**item, "restarts": self._restarts} for item in said.figures]
            message = {"attempt": self._attempt, "port": port, "seen": said.seen, "open": said.open, "figures": figures}
            try:
                self._link.call("POST", "serving", message)
            except Unreachable:
                time.sleep(_AGAIN_S)

    def _end(self) -> None:
        """Answer what is there, and go."""
        for worker in (self._current, self._next):
            worker.process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for worker in (self._current, self._next):
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def _listener(table: Table) -> socket.socket:
    """Where the endpoint was before, so that its address stays; elsewhere where that is taken."""
    try:
        listener = listener_on(table.host, table.port)
    except OSError:
        listener = listener_on(table.host)
    if table.public:
        keep_open_to_all(listener)
    return listener


def _first_table(link: Link) -> bytes:
    while True:
        try:
            return json.dumps(link.call("GET", "serving/routes?seen=-1&wait_s=0")).encode()
        except Unreachable as error:
            print("muster: no routes: {}".format(error), file=sys.stderr)
            time.sleep(_AGAIN_S)


def main() -> int:
    link, attempt = Link(), int(os.environ.get("MUSTER_ATTEMPT", "1"))
    first_orders(link, attempt)
    door: Optional[Door] = None

    def end(*_: object) -> None:
        if door is None:
            sys.exit(0)
        door.ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    door = Door(link, attempt, _first_table(link))
    return door.work()


if __name__ == "__main__":
    sys.exit(main())
