"""Keeps the replicas of a model: starts them, notes which are ready, and restarts those that die."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Container, Dict, List, Mapping, Optional

from muster.scoring.figures import Spread
from muster.scoring.script import INIT_FAILED
from muster.scoring.serve.replica import NO_SERVER
from muster.scoring.serve.scaling import Pace, wanted
from muster.scoring.serve.settings import Settings

_GRACE_S = 27.0
_POLL_S = 0.1
_BAD_STARTS = 5
_MOST_PAUSE_S = 10.0
_UNUSED_S = 5.0
"""The time between a replica's last possible request and its end."""
_DEVICES = "CUDA_VISIBLE_DEVICES"

Change = Callable[[], None]


@dataclass
class Replica:
    """One process with a model."""

    number: int
    listener: socket.socket
    process: "subprocess.Popen[bytes]"
    pipe: int
    is_ready: bool = False
    ready_at: float = 0.0
    starts_at: Optional[float] = None
    """When a new process replaces this one, which is dead."""
    is_leaving: bool = False
    """Fewer are needed: it gets no new requests."""
    leaves_at: Optional[float] = None
    """When it is ended: a while after it got its last request."""
    lines: bytes = b""
    waiting: int = 0

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])


@dataclass
class Totals:
    """The sum over all replicas."""

    requests: int = 0
    failed: int = 0
    restarts: int = 0
    batched: int = 0
    batches: int = 0
    run_ms: Spread = field(default_factory=Spread)
    queue_ms: Spread = field(default_factory=Spread)


class Supervisor:
    """The replicas of one run. `listener_of` gives each the socket that it listens on."""

    def __init__(
        self,
        settings: Settings,
        listener_of: Callable[[int], socket.socket],
        run: Any,
        environment: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._settings = settings
        self._listener_of = listener_of
        self._run = run
        self._environment = dict(os.environ if environment is None else environment)
        self._bad_starts = 0
        self._has_served = False
        self._busy_s = 0.0
        self._decided_at = time.monotonic()
        self._pace = Pace(settings.idle_s)
        self.replicas: List[Replica] = []
        self.totals = Totals()
        self.changed: Change = lambda: None
        """Called when the set of ready replicas changes."""
        self.waiting_elsewhere: Callable[[], int] = lambda: 0
        """Requests that wait for these replicas before they reach them."""
        self.may_shrink: Callable[[], bool] = lambda: True
        self.ending = False

    def work(self) -> int:
        """Run until it is asked to end, or no replica can be started; returns the exit code."""
        # At least one, which shows whether the model can be loaded at all.
        self.replicas = [self._start(number) for number in range(max(1, self._settings.replicas))]
        while not self.ending:
            self._read()
            for replica in list(self.replicas):
                code = replica.process.poll()
                if code is not None and (final := self._replace(replica, code)) is not None:
                    self._end()
                    return final
            self._scale()
            time.sleep(_POLL_S)
        self._end()
        return 0

    def _replace(self, replica: Replica, code: int) -> Optional[int]:
        """Restart a dead replica when its time has come; returns the exit code if its end is the end of all."""
        if replica.starts_at is None:
            os.close(replica.pipe)
            if not replica.is_leaving and (final := self._judge(replica, code)) is not None:
                return final
            replica.is_ready, replica.starts_at = False, replica.starts_at or 0.0
            self.changed()
        if replica.is_leaving:
            self.replicas.remove(replica)
            replica.listener.close()
        elif time.monotonic() >= replica.starts_at:
            self.replicas[self.replicas.index(replica)] = self._start(replica.number, replica.listener)
        return None

    @property
    def active(self) -> List[Replica]:
        """The replicas that get requests."""
        return [replica for replica in self.replicas if not replica.is_leaving]

    def unasked_but(self, ports: Container[int]) -> None:
        """Only the replicas at these ports still get requests: others that are leaving may end soon."""
        for replica in self.replicas:
            if replica.is_leaving and replica.leaves_at is None and replica.port not in ports:
                replica.leaves_at = time.monotonic() + _UNUSED_S

    @property
    def busy(self) -> float:
        """The share of their time that replicas were busy since the last decision."""
        count = sum(replica.is_ready for replica in self.active)
        return self._busy_s / max(0.001, time.monotonic() - self._decided_at) / max(1, count)

    def _start(self, number: int, listener: Optional[socket.socket] = None) -> Replica:
        listener = listener or self._listener_of(number)
        ours, its = os.pipe()
        os.set_blocking(ours, False)
        handed = [listener.fileno(), its]
        command = [
            sys.executable,
            "-m",
            "muster.scoring.serve.replica",
            str(handed[0]),
            str(its),
            self._settings.dump(),
        ]
        process = subprocess.Popen(command, pass_fds=handed, env=self._environment_of(number))
        os.close(its)
        return Replica(number, listener, process, ours)

    def _environment_of(self, number: int) -> Dict[str, str]:
        """Distribute the node's GPUs over the replicas of an endpoint, one each."""
        devices = [name for name in self._environment.get(_DEVICES, "").split(",") if name]
        if not self._settings.endpoint or len(devices) < 2:
            return self._environment
        return {**self._environment, _DEVICES: devices[number % len(devices)]}

    def _read(self) -> None:
        """Read the replicas' reports: that they are ready, and their work."""
        for replica in self.replicas:
            if replica.starts_at is not None:
                continue
            try:
                piece = os.read(replica.pipe, 1 << 16)
            except BlockingIOError:
                continue
            *lines, replica.lines = (replica.lines + piece).split(b"\n")
            for line in lines:
                self._note(replica, line)
            if lines and not replica.is_ready:
                self._ready(replica)

    def _ready(self, replica: Replica) -> None:
        replica.is_ready, replica.ready_at = True, time.monotonic()
        self._bad_starts, self._has_served = 0, True
        print("replica {} is ready (process {})".format(replica.number, replica.process.pid))
        self._run.log("replicas_ready", sum(other.is_ready for other in self.active))
        self.changed()

    def _note(self, replica: Replica, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return  # cut off, because nobody read for a while: a second without figures
        totals, batches = self.totals, {int(size): count for size, count in said["batches"].items()}
        requests = sum(size * count for size, count in batches.items())
        totals.requests += requests
        totals.failed += said["failed"]
        totals.batched += requests
        totals.batches += sum(batches.values())
        totals.run_ms.merge({int(index): count for index, count in said["run_ms"].items()})
        totals.queue_ms.merge({int(index): count for index, count in said["queue_ms"].items()})
        self._busy_s += said["busy_s"]
        replica.waiting = said["waiting"]

    def _judge(self, replica: Replica, code: int) -> Optional[int]:
        """Whether a dead replica ends all: one that never was ready does if none ever was, or after some tries."""
        is_hopeless = code == NO_SERVER or (code == INIT_FAILED and not self._has_served)
        if is_hopeless and not replica.is_ready:
            # It has printed the reason itself, which should be the last line.
            return code
        how = (
            "was ended by {}".format(signal.Signals(-code).name) if code < 0 else "ended with exit code {}".format(code)
        )
        print(
            "muster: replica {} {}{}".format(replica.number, how, "" if replica.is_ready else " before it was ready"),
            file=sys.stderr,
        )
        if not replica.is_ready:
            self._bad_starts += 1
            if self._bad_starts >= _BAD_STARTS and not any(other.is_ready for other in self.replicas):
                return 1
            replica.starts_at = time.monotonic() + min(_MOST_PAUSE_S, 0.2 * 2 ** min(self._bad_starts, 10))
        self.totals.restarts += 1
        self._run.log("replica_restarts", self.totals.restarts)
        return None

    def _scale(self) -> None:
        """Start as many replicas as the load needs; end those that get no more requests."""
        settings, now = self._settings, time.monotonic()
        for replica in self.replicas:
            if replica.leaves_at is not None and replica.leaves_at <= now:
                replica.leaves_at = math.inf
                replica.process.terminate()
        if settings.max_replicas <= settings.replicas or now - self._decided_at < settings.polling_s:
            return
        active = self.active
        waiting = sum(replica.waiting for replica in active) + self.waiting_elsewhere()
        needed = wanted(
            len(active), self.busy, waiting, settings.target_percent, settings.replicas, settings.max_replicas
        )
        self._busy_s, self._decided_at = 0.0, now
        if not all(replica.is_ready for replica in active):
            # The replicas that are starting may be enough.
            return
        count = self._pace.next(len(active), needed, now)
        if count > len(active):
            used = {replica.number for replica in self.replicas}
            free = [number for number in range(settings.max_replicas + len(used)) if number not in used]
            self.replicas += [self._start(number) for number in free[: count - len(active)]]
        elif count < len(active) and self.may_shrink():
            active[-1].is_leaving = True
        else:
            return
        print("replicas: {} → {} ({} wait)".format(len(active), count, waiting))
        self.changed()

    def _end(self) -> None:
        """Let replicas finish their requests, then make sure that they are gone."""
        for replica in self.replicas:
            if replica.process.poll() is None:
                replica.process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for replica in self.replicas:
            try:
                replica.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                replica.process.kill()
                replica.process.wait()
