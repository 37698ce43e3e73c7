"""`python -m muster.scoring.serve SETTINGS`: holds the listener, and keeps the replicas behind it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, List, Optional

from muster.runtime.run import Run
from muster.scoring.script import INIT_FAILED
from muster.scoring.serve.replica import NO_SERVER
from muster.scoring.serve.settings import Settings

_GRACE_S = 27.0
_POLL_S = 0.1
_BAD_STARTS = 5
_MOST_PAUSE_S = 10.0
_BACKLOG = 2048


@dataclass
class Replica:
    """One process with a model."""

    number: int
    process: "subprocess.Popen[bytes]"
    ready_pipe: int
    is_ready: bool = False


class Supervisor:
    """Starts replicas, sees which are ready, and starts those that die again."""

    def __init__(self, settings: Settings, listener: socket.socket, run: Any) -> None:
        self._settings = settings
        self._listener = listener
        self._run = run
        self._replicas: List[Replica] = []
        self._bad_starts = 0
        self._restarts = 0
        self.ending = False

    def work(self) -> int:
        """Until it is told to end, or no replica can be started; returns the exit code."""
        self._replicas = [self._start(number) for number in range(self._settings.replicas)]
        while not self.ending:
            self._see_ready()
            for index, replica in enumerate(self._replicas):
                code = replica.process.poll()
                if code is None:
                    continue
                os.close(replica.ready_pipe)
                if (final := self._judge(replica, code)) is not None:
                    self._end()
                    return final
                self._replicas[index] = self._start(replica.number)
            time.sleep(_POLL_S)
        self._end()
        return 0

    def _start(self, number: int) -> Replica:
        ours, its = os.pipe()
        handed = [self._listener.fileno(), its]
        command = [
            sys.executable,
            "-m",
            "muster.scoring.serve.replica",
            str(handed[0]),
            str(its),
            self._settings.dump(),
        ]
        process = subprocess.Popen(command, pass_fds=handed)
        os.close(its)
        return Replica(number, process, ours)

    def _see_ready(self) -> None:
        waiting = [replica for replica in self._replicas if not replica.is_ready]
        if not waiting:
            return
        readable = select.select([replica.ready_pipe for replica in waiting], [], [], 0)[0]
        for replica in waiting:
            if replica.ready_pipe in readable and os.read(replica.ready_pipe, 1):
                replica.is_ready = True
                self._bad_starts = 0
                print("replica {} is ready (process {})".format(replica.number, replica.process.pid))
                count = sum(1 for other in self._replicas if other.is_ready)
                self._run.log("replicas_ready", count)

    def _judge(self, replica: Replica, code: int) -> Optional[int]:
        """Whether a dead replica ends the whole: one that never came up does, after some tries."""
        how = (
            "was ended by {}".format(signal.Signals(-code).name) if code < 0 else "ended with exit code {}".format(code)
        )
        print(
            "muster: replica {} {}{}".format(replica.number, how, "" if replica.is_ready else " before it was ready"),
            file=sys.stderr,
        )
        if code in (INIT_FAILED, NO_SERVER) and not replica.is_ready:
            return code
        if not replica.is_ready:
            self._bad_starts += 1
            if self._bad_starts >= _BAD_STARTS:
                return 1
            time.sleep(min(_MOST_PAUSE_S, 0.2 * 2**self._bad_starts))
        self._restarts += 1
        self._run.log("replica_restarts", self._restarts)
        return None

    def _end(self) -> None:
        """Let replicas finish what they have, then make sure that they are gone."""
        for replica in self._replicas:
            if replica.process.poll() is None:
                replica.process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for replica in self._replicas:
            try:
                replica.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                replica.process.kill()
                replica.process.wait()


def main() -> int:
    settings = Settings.parse(sys.argv[1])
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        print(
            "muster: {}:{} cannot be listened on: {}".format(settings.host, settings.port, error.strerror),
            file=sys.stderr,
        )
        return 1
    listener.listen(_BACKLOG)
    supervisor = Supervisor(settings, listener, Run.get_context())

    def end(*_: object) -> None:
        supervisor.ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    print("serving {} on http://{}:{}".format(settings.name, settings.host, listener.getsockname()[1]))
    return supervisor.work()


if __name__ == "__main__":
    sys.exit(main())
