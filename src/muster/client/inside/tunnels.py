"""Tunnels into a run's nodes: opening them, and the client's end of a session."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

from muster.client.calls import API, Group, run_path
from muster.defaults import TUNNEL_DIAL_S
from muster.errors import Conflict, MusterError, ServerUnavailable
from muster.host import frames
from muster.host.streams import End, Incoming, Outgoing, Waiting
from muster.host.tunnels import dial, end_of
from muster.wire.codec import from_json
from muster.wire.tunnels import NewTunnel, StacksReport, TunnelTarget, TunnelView

_PATIENCE_S = 10.0
"""Longer than the server waits for the node."""
_REPORT_BYTES = 256 << 20


@dataclass(frozen=True)
class OpenTunnel:
    """A tunnel whose two ends are joined."""

    view: TunnelView
    connection: socket.socket


class Tunnels(Group):
    """Calls that lead into nodes."""

    def open_tunnel(self, ref: str, target: TunnelTarget, node_rank: int | None = None) -> OpenTunnel:
        """Open a tunnel to the node of a rank; the caller must close it."""
        message = NewTunnel(target, node_rank)
        view = self.calls.read(TunnelView, "POST", run_path(ref, "tunnels"), message=message, again=False)
        path = f"{API}/tunnels/{quote(view.id, safe='')}"
        return OpenTunnel(view, dial(self.calls.address, path, TUNNEL_DIAL_S + _PATIENCE_S))

    def stacks(
        self, ref: str, rank: int | None = None, node_rank: int | None = None
    ) -> tuple[TunnelView, StacksReport]:
        """The stacks of the Python processes of one node, or of one rank."""
        tunnel = self.open_tunnel(ref, TunnelTarget("stacks", rank), node_rank)
        report = _Collected()
        Session(tunnel, {}, {frames.DATA: report}).run()
        return tunnel.view, from_json(StacksReport, report.value())


class Session:
    """The client's end of one tunnel, with a loop of its own, for one thread."""

    def __init__(self, tunnel: OpenTunnel, sources: Mapping[bytes, End], sinks: Mapping[bytes, End]) -> None:
        self._view = tunnel.view
        self._end = end_of(tunnel.connection)
        self._sinks = sinks
        self._outgoing = Outgoing(self._end, sources)
        self._incoming = Incoming(self._end, sinks, self._control)
        self._code: int | None = None
        self._trouble = ""
        self._wake, self._wake_write = os.pipe()
        for end in (self._wake, self._wake_write):
            os.set_blocking(end, False)

    def send(self, data: bytes) -> None:
        """Send a frame; callable from a signal handler."""
        self._outgoing.send(data)
        with suppress(OSError):
            os.write(self._wake_write, b"\0")

    def run(self, ended: Callable[[], bool] = lambda: False) -> int:
        """Carry data until the remote command has ended; returns its exit code.

        Raises Conflict where the node reports an error, ServerUnavailable where the tunnel was cut. When `ended`
        returns true, the tunnel is closed and the code is 0.
        """
        try:
            while True:
                waiting = Waiting()
                waiting.add(self._outgoing.turn())
                waiting.add(self._incoming.turn())
                if self._code is not None or self._trouble or ended():
                    break
                if self._incoming.ended:
                    raise self._cut()
                if self._outgoing.broken:
                    # Its last frames may still be in transit.
                    self._outgoing.drop_sources()
                waiting.watch(self._wake)
                if self._wake in waiting.wait():
                    os.read(self._wake, 4096)
        except frames.FrameError as error:
            raise MusterError(f"what came through the tunnel cannot be read: {error}") from error
        finally:
            self._end.close()
            os.close(self._wake)
            os.close(self._wake_write)
        if self._trouble:
            raise Conflict(f"{self._trouble} (run {self._view.run}, node {self._view.node})")
        return self._code or 0

    def _control(self, kind: bytes, payload: memoryview) -> None:
        if kind == frames.EXIT:
            self._code = frames.exit_of(payload)
        elif kind == frames.TROUBLE:
            self._trouble = bytes(payload).decode(errors="replace")
        elif kind == frames.END:
            for sink in self._sinks.values():
                sink.finish()

    def _cut(self) -> ServerUnavailable:
        view = self._view
        return ServerUnavailable(
            f"the tunnel to run {view.run} was cut: the server, node {view.node} or its attempt ended",
            f"`muster show {view.run}` says how it stands; what ran at the other end is ended.",
        )


@dataclass
class _Collected(End):
    """Collects what arrives."""

    _data: bytearray = field(default_factory=bytearray)

    def fileno(self) -> int:
        return -1

    def write(self, data: memoryview) -> int | None:
        if len(self._data) > _REPORT_BYTES:
            return 0
        self._data += data
        return len(data)

    def close(self) -> None:
        self._data.clear()

    def value(self) -> object:
        return json.loads(self._data)
