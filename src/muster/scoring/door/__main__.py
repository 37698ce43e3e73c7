"""`python -m muster.scoring.door`: holds an endpoint's address, and keeps the process that answers there running."""

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
from dataclasses import asdict, dataclass, field, replace
from typing import List, Optional

from muster.scoring.door.direct import Direct, reach
from muster.scoring.door.handover import Closed
from muster.scoring.door.said import Figures, Said, Silence, merged, past, together
from muster.scoring.door.said import parse as parse_said
from muster.scoring.door.table import Table, parse, sole_replica, telling
from muster.scoring.door.worker import NO_LIBRARIES
from muster.scoring.link import Link, Unreachable
from muster.scoring.listening import keep_open_to_all, listener_on
from muster.scoring.serve.member import REPORT_S, first_orders

_WAIT_S = 20.0
_AGAIN_S = 0.5
_POLL_S = 0.05
_GRACE_S = 27.0
_LOOK_S = 5.0
_BAD_STARTS = 20
_FROZEN_S = 10.0
"""Workers and replicas report twice a second: one that is silent for this long is frozen."""
_TAKE_S = 2.0
"""How long a worker may leave what it is sent unread."""
_LOADING_S = 30.0
"""How much longer a process may take until its first report."""


@dataclass
class Worker:
    """A process of the front door, and the connection to it."""

    process: "subprocess.Popen[bytes]"
    control: socket.socket
    began: float
    heard: bytes = b""
    said: Said = field(default_factory=Said)
    silence: Silence = field(default_factory=lambda: Silence(_LOADING_S))


class Door:
    """One endpoint's address."""

    def __init__(self, link: Link, attempt: int, first: bytes) -> None:
        self._link = link
        self._attempt = attempt
        self._text, self._table = first, parse(json.loads(first))
        self._directs: List[Direct] = []
        """Replicas that have the listener, or still have connections from when they had it."""
        self._past: List[Figures] = []
        self._listener = self._taken_over() or _listener(self._table)
        self._lock = threading.RLock()
        self._news = threading.Event()
        self._restarts = 0
        self._looked_at = 0.0
        self.ending = False
        self._current = self._start()
        self._next = self._start()
        self._arrange()

    def work(self) -> int:
        """Run until it is asked to end; returns the exit code."""
        port = self._listener.getsockname()[1]
        scheme = "https" if self._table.certificate else "http"
        print("endpoint {} answers on {}://{}:{}/score".format(self._table.endpoint, scheme, self._table.host, port))
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
                self._past = merged([*self._past, *past(self._current.said.figures)])
                self._current, self._next = self._next, self._start()
            self._arrange()
        self._end()
        return 0

    def _taken_over(self) -> Optional[socket.socket]:
        """The listener of an earlier front door that died, taken from the replica that held it."""
        for route in self._table.deployments:
            for backend in route.backends:
                found = reach(backend)
                if found is not None and found.held is not None:
                    found.accepts = found.is_taking = True
                    self._directs.append(found)
                    return found.held
                if found is not None:
                    found.line.close()
        return None

    def _start(self) -> Worker:
        ours, its = socket.socketpair()
        ours.settimeout(_TAKE_S)
        handed = [self._listener.fileno(), its.fileno()]
        command = [sys.executable, "-m", "muster.scoring.door.worker", *map(str, handed)]
        process = subprocess.Popen(command, pass_fds=handed)
        its.close()
        return Worker(process, ours, time.monotonic())

    def _arrange(self) -> None:
        """Have the only replica take connections itself, if it is on this machine; otherwise the worker.

        The one that should take them hears first: during a change both may take connections, but never neither.
        """
        with self._lock:
            self._looked_at = time.monotonic()
            wanted = sole_replica(self._table)
            if wanted is not None and not any(item.backend == wanted for item in self._directs):
                found = reach(wanted)
                if found is not None:
                    self._directs.append(found)
            chosen = next((item for item in self._directs if item.backend == wanted), None)
            if chosen is not None:
                chosen.tell(self._text, self._table.version, True, self._listener)
            self._tell_worker(chosen is None or not chosen.is_taking)
            for item in self._directs:
                if item is not chosen:
                    item.tell(self._text, self._table.version, False, self._listener)

    def _tell_worker(self, accepts: bool) -> None:
        try:
            self._current.control.sendall(telling(accepts, self._text))
        except OSError:
            # It has just died, or does not read and has received half a line: the next worker gets it.
            self._current.process.kill()

    def _read(self) -> None:
        """Wait a moment for reports from the worker and the replicas."""
        worker, before, began = self._current, self._said(), time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(worker.control, selectors.EVENT_READ, worker)
            for item in list(self._directs):
                selector.register(item.line.connection, selectors.EVENT_READ, item)
            for key, _ in selector.select(_POLL_S):
                if isinstance(key.data, Direct):
                    self._hear_replica(key.data)
                else:
                    _hear(worker)
        self._count_silence(worker, min(time.monotonic() - began, 2 * _POLL_S))
        now = self._said()
        if now.seen != before.seen or (now.waiting and not before.waiting):
            # The first request that waits may have to start a replica.
            self._news.set()
        wanted = sole_replica(self._table)
        if wanted is not None and time.monotonic() - self._looked_at > _LOOK_S:
            self._looked_at = time.monotonic()
            if not any(item.backend == wanted for item in self._directs):
                self._arrange()

    def _count_silence(self, worker: Worker, seconds: float) -> None:
        """End a frozen worker; take over the connections of a frozen replica."""
        if worker.silence.passed(seconds, _FROZEN_S):
            print("muster: the front door's process does not run: it is ended")
            worker.process.kill()
        for item in list(self._directs):
            if item.silence.passed(seconds, _FROZEN_S) and item.is_taking:
                print("muster: the replica has been silent for {:g} s: connections are taken for it".format(_FROZEN_S))
                item.is_taking = False
                self._arrange()

    def _hear_replica(self, item: Direct) -> None:
        try:
            is_fresh = item.read()
        except Closed:
            self._drop(item)
            self._arrange()
            return
        if is_fresh:
            self._arrange()
        elif item.is_done:
            self._drop(item)

    def _drop(self, item: Direct) -> None:
        with self._lock:
            self._directs.remove(item)
            self._past = merged([*self._past, *past(item.said.figures)])
            item.line.close()

    def _said(self) -> Said:
        with self._lock:
            return together([self._current.said, *(item.said for item in self._directs)], self._past)

    def _follow(self) -> None:
        """In a thread: wait for new tables. While the server is away, the last one stays valid."""
        while True:
            try:
                what = "serving/routes?seen={}&wait_s={:g}".format(self._table.version, _WAIT_S)
                found = self._link.call("GET", what, wait_s=_WAIT_S)
            except Unreachable:
                time.sleep(_AGAIN_S)
                continue
            if found["version"] != self._table.version:
                with self._lock:
                    self._text, self._table = json.dumps(found).encode(), parse(found)
                    self._arrange()

    def _report(self) -> None:
        while True:
            self._news.wait(REPORT_S)
            self._news.clear()
            port = self._listener.getsockname()[1]
            said = self._said()
            figures = [asdict(replace(item, restarts=self._restarts)) for item in said.figures]
            message = {"attempt": self._attempt, "port": port, "seen": said.seen, "open": said.open, "figures": figures}
            try:
                self._link.call("POST", "serving", message)
            except Unreachable:
                time.sleep(_AGAIN_S)

    def _end(self) -> None:
        """Answer the requests that are there, then end."""
        for worker in (self._current, self._next):
            worker.process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for worker in (self._current, self._next):
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def _hear(worker: Worker) -> None:
    try:
        piece = worker.control.recv(1 << 20)
    except OSError:
        piece = b""
    if not piece:
        time.sleep(_POLL_S / 5)
        return
    *lines, worker.heard = (worker.heard + piece).split(b"\n")
    for line in lines:
        worker.said = parse_said(line) or worker.said
        worker.silence.end()


def _listener(table: Table) -> socket.socket:
    """The endpoint's earlier port, so that its address stays the same; another one if that is taken."""
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
