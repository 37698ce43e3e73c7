"""Joined byte streams with bounded buffers: nothing is read before earlier data has been passed on.

Single-threaded and non-blocking, so that one loop can carry many. Standard library only, Python 3.8: it is part of
the keeper.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from muster.host import frames

READ, WRITE = select.POLLIN, select.POLLOUT
_AT_ONCE = 16
"""How many pieces one stream moves before others get their turn."""


class End:
    """One end of a stream; reading and writing never block."""

    def fileno(self) -> int:
        raise NotImplementedError

    def read_into(self, target: memoryview) -> int | None:
        """Read; returns how many bytes, 0 at the end, None where none are available yet."""
        raise NotImplementedError

    def write(self, data: memoryview) -> int | None:
        """Write; returns how many bytes, None where there is no room, 0 where the reader is gone."""
        raise NotImplementedError

    def finish(self) -> None:
        """Signal that nothing more will be written."""

    def close(self) -> None:
        raise NotImplementedError


class SocketEnd(End):
    """A plain socket."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end

    def fileno(self) -> int:
        return self._socket.fileno()

    def read_into(self, target: memoryview) -> int | None:
        try:
            return self._socket.recv_into(target)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return 0

    def write(self, data: memoryview) -> int | None:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return 0

    def finish(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    @property
    def is_hung_up(self) -> bool:
        """Whether the other side has closed, and does not only write nothing more."""
        look = select.poll()
        look.register(self._socket.fileno(), 0)
        return bool(look.poll(0))

    def close(self) -> None:
        self._socket.close()


class FileEnd(End):
    """A descriptor that we own: a pipe or a terminal's master. Two ends may share one, for its two directions."""

    def __init__(self, descriptor: int, is_terminal: bool = False) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._is_terminal = is_terminal

    def fileno(self) -> int:
        return self._descriptor

    def read_into(self, target: memoryview) -> int | None:
        try:
            return os.readv(self._descriptor, [target])
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            # What a terminal reports when its last user is gone.
            return 0

    def write(self, data: memoryview) -> int | None:
        try:
            return os.write(self._descriptor, data)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return 0

    def finish(self) -> None:
        if self._is_terminal:
            # A terminal's only end of input is this character.
            self.write(memoryview(b"\x04"))
        else:
            self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class SharedEnd(End):
    """A descriptor that others share (standard input and output), so its mode must not be changed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.broken = False
        """The reader is gone."""

    def fileno(self) -> int:
        return self._descriptor

    def read_into(self, target: memoryview) -> int | None:
        look = select.poll()
        look.register(self._descriptor, READ)
        if not look.poll(0):
            return None
        try:
            return os.readv(self._descriptor, [target])
        except OSError:
            return 0

    def write(self, data: memoryview) -> int | None:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return None
        except OSError:
            self.broken = True
            return 0

    def close(self) -> None:
        pass


class Duct:
    """Relays bytes from one end to another unchanged."""

    def __init__(self, source: End, sink: End) -> None:
        self._source = source
        self._sink = sink
        self._buffer = memoryview(bytearray(frames.PIECE_BYTES))
        self._left = self._buffer[:0]
        self.ended = False
        """The source has ended, and all that came from it was passed on."""
        self.broken = False
        """Nobody takes what comes from the source."""

    def turn(self) -> list[tuple[int, int]] | None:
        """Move what can be moved; returns what to wait for, or None where there is more to do."""
        if self.ended or self.broken:
            return []
        for _ in range(_AT_ONCE):
            while self._left:
                count = self._sink.write(self._left)
                if count is None:
                    return [(self._sink.fileno(), WRITE)]
                if count == 0:
                    self.broken = True
                    return []
                self._left = self._left[count:]
            got = self._source.read_into(self._buffer)
            if got is None:
                return [(self._source.fileno(), READ)]
            if got == 0:
                self.ended = True
                return []
            self._left = self._buffer[:got]
        return None


class Outgoing:
    """Frames to one end: data of several sources, and single frames between them."""

    def __init__(self, sink: End, sources: Mapping[bytes, End]) -> None:
        self._sink = sink
        self._sources = dict(sources)
        self._buffer = memoryview(bytearray(frames.HEADER_BYTES + frames.PIECE_BYTES))
        self._left = self._buffer[:0]
        self._waiting: deque[bytes] = deque()
        self.broken = False
        """The receiver of frames is gone."""

    @property
    def drained(self) -> bool:
        """Whether everything was sent."""
        return not self._sources and not self._waiting and not self._left

    def send(self, data: bytes) -> None:
        """Send a single frame, after the one in progress."""
        if not (self._waiting and data[:1] == frames.WINDOW == self._waiting[-1][:1]):
            self._waiting.append(data)
        else:
            self._waiting[-1] = data

    def drop_sources(self) -> None:
        self._sources.clear()

    def turn(self) -> list[tuple[int, int]] | None:
        """Move what can be moved; returns what to wait for, or None where there is more to do."""
        for _ in range(_AT_ONCE):
            while self._left:
                count = self._sink.write(self._left)
                if count is None:
                    return [(self._sink.fileno(), WRITE)]
                if count == 0:
                    self.broken = True
                    return []
                self._left = self._left[count:]
            if self._waiting:
                self._left = memoryview(self._waiting.popleft())
            elif not self._fill():
                return [(source.fileno(), READ) for source in self._sources.values()]
        return None

    def _fill(self) -> bool:
        """Read the next bytes of the sources, in turns; False where none are available."""
        for kind, source in list(self._sources.items()):
            got = source.read_into(self._buffer[frames.HEADER_BYTES :])
            if got is None:
                continue
            del self._sources[kind]
            if got == 0:
                if not self._sources:
                    self.send(frames.frame(frames.END))
                return True
            # Last in line from now on.
            self._sources[kind] = source
            frames.put_header(self._buffer, kind, got)
            self._left = self._buffer[: frames.HEADER_BYTES + got]
            return True
        return False


class Incoming:
    """Frames from one end: data goes to the end for its kind, other frames to `control`."""

    def __init__(self, source: End, sinks: Mapping[bytes, End], control: Callable[[bytes, memoryview], None]) -> None:
        self._source = source
        self._sinks = dict(sinks)
        self._control = control
        self._decoder = frames.Decoder()
        self._buffer = memoryview(bytearray(frames.PIECE_BYTES))
        self._pieces = self._decoder.pieces(self._buffer[:0])
        self._kind = b""
        self._left = self._buffer[:0]
        self.ended = False

    def turn(self) -> list[tuple[int, int]] | None:
        """Move what can be moved; returns what to wait for, or None where there is more to do. Raises FrameError."""
        for _ in range(_AT_ONCE):
            waits = self._empty()
            if waits:
                return waits
            got = self._source.read_into(self._buffer)
            if got is None:
                return [(self._source.fileno(), READ)]
            if got == 0:
                self.ended = True
                return []
            self._pieces = self._decoder.pieces(self._buffer[:got])
        return None

    def _empty(self) -> list[tuple[int, int]]:
        """Pass on all that was read; returns what to wait for where that is not possible."""
        while True:
            while self._left:
                sink = self._sinks.get(self._kind)
                count = sink.write(self._left) if sink else 0
                if count is None and sink:
                    return [(sink.fileno(), WRITE)]
                if not count:
                    # Its reader is gone: data of this kind is dropped, and the stream goes on.
                    self._sinks.pop(self._kind, None)
                    self._left = self._left[:0]
                else:
                    self._left = self._left[count:]
            piece = next(self._pieces, None)
            if piece is None:
                return []
            if piece.kind in (frames.DATA, frames.ERRORS):
                self._kind, self._left = piece.kind, piece.data
            else:
                self._control(piece.kind, piece.data)


class Waiting:
    """What one iteration of a loop has to wait for."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self.more = False
        """A stream has more to do at once."""

    def add(self, waits: Iterable[tuple[int, int]] | None) -> None:
        """Add what a stream waits for, as its `turn` returned it."""
        self.more = self.more or waits is None
        for descriptor, mask in waits or ():
            if descriptor >= 0:
                self._masks[descriptor] = self._masks.get(descriptor, 0) | mask

    def watch(self, descriptor: int) -> None:
        """Also wait for this descriptor."""
        self._masks[descriptor] = self._masks.get(descriptor, 0) | READ

    def wait(self, timeout_s: float | None = None) -> set[int]:
        """The descriptors that are ready."""
        waiting = select.poll()
        for descriptor, mask in self._masks.items():
            waiting.register(descriptor, mask)
        timeout_ms = 0 if self.more else None if timeout_s is None else max(0, int(timeout_s * 1000))
        return {descriptor for descriptor, _ in waiting.poll(timeout_ms)}
