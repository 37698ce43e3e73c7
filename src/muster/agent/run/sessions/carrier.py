"""The loop of a session: frames to and from the tunnel, until one side has ended."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping

from muster.host import frames
from muster.host.streams import READ, End, Incoming, Outgoing, SocketEnd, Waiting

_STOPPED_S = 0.5
STOPPED = "the attempt is being stopped"


class Trouble(Exception):
    """Why a session cannot go on, for the person at the other end."""


class Carrier:
    """The session's end of a tunnel."""

    def __init__(self, tunnel: socket.socket) -> None:
        self._tunnel = SocketEnd(tunnel)
        self._outgoing = Outgoing(self._tunnel, {})
        self._stopped = False
        self._deadline = math.inf
        """Of finishing."""
        self._wake, self._wake_write = os.pipe()
        for end in (self._wake, self._wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def stop(self) -> None:
        """In a signal handler: the attempt ends."""
        self._stopped = True

    def say(self, kind: bytes, payload: bytes) -> None:
        """One frame, in pieces where it is long."""
        for begin in range(0, max(1, len(payload)), frames.PIECE_BYTES):
            self._outgoing.send(frames.frame(kind, payload[begin : begin + frames.PIECE_BYTES]))

    def say_trouble(self, text: str) -> None:
        self._outgoing.send(frames.frame(frames.TROUBLE, text.encode(errors="replace")[:8000]))

    def say_exit(self, code: int) -> None:
        self._outgoing.send(frames.exit_frame(code))

    def run(
        self,
        sources: Mapping[bytes, End],
        sink: End,
        control: Callable[[bytes, memoryview], None],
        is_over: Callable[[], bool],
    ) -> bool:
        """Carry bytes both ways; False when the person has gone. `is_over` is called whenever something happened.

        It returns once all data of the sources has been sent. Raises Trouble when the attempt is stopped.
        """
        outgoing = self._outgoing = Outgoing(self._tunnel, sources)
        incoming = Incoming(self._tunnel, {frames.DATA: sink}, control)
        while True:
            waiting = Waiting()
            waiting.add(outgoing.turn())
            try:
                waiting.add(incoming.turn())
            except frames.FrameError as error:
                raise Trouble(f"what came through the tunnel cannot be read: {error}") from error
            if incoming.ended or outgoing.broken:
                return False
            if self._stopped:
                outgoing.drop_sources()
                raise Trouble(STOPPED)
            if is_over() and outgoing.drained:
                return True
            waiting.watch(self._wake)
            if self._wake in waiting.wait():
                os.read(self._wake, 4096)

    def finish(self, patience_s: float) -> None:
        """Send what is left and wait until the other end leaves, within `patience_s`.

        Only for a moment once the attempt ends. Closing earlier may discard data that has not arrived yet.
        """
        self._deadline = time.monotonic() + patience_s
        outgoing = self._outgoing
        while not outgoing.drained and not outgoing.broken and self._has_time:
            waits = outgoing.turn()
            if not outgoing.drained:
                self._wait(waits)
        self._tunnel.finish()
        target = memoryview(bytearray(frames.PIECE_BYTES))
        while not outgoing.broken and self._has_time:
            got = self._tunnel.read_into(target)
            if got == 0:
                return
            if got is None:
                self._wait([(self._tunnel.fileno(), READ)])

    @property
    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline

    def _wait(self, waits: list[tuple[int, int]] | None) -> None:
        """Wait until there is something to do, or no time left."""
        waiting = Waiting()
        waiting.add(waits)
        waiting.watch(self._wake)
        if self._wake in waiting.wait(max(0.01, self._deadline - time.monotonic())):
            os.read(self._wake, 4096)
        if self._stopped:
            self._deadline = min(self._deadline, time.monotonic() + _STOPPED_S)
