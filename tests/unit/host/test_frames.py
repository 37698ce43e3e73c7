"""Frames: whatever the pieces, what went in comes out; what is none is refused."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.host import frames
from muster.host.frames import DATA, END, ERRORS, EXIT, TROUBLE, WINDOW, Decoder, FrameError
from muster.host.streams import Duct, Incoming, Outgoing, SocketEnd

KINDS = st.sampled_from([DATA, ERRORS, END, TROUBLE])


def joined(sent: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Data as one text for each stretch of a kind: how it is cut does not matter."""
    found: list[tuple[bytes, bytes]] = []
    for kind, data in sent:
        if found and found[-1][0] == kind and kind in (DATA, ERRORS):
            found[-1] = (kind, found[-1][1] + data)
        else:
            found.append((kind, data))
    return [item for item in found if item[1] or item[0] not in (DATA, ERRORS)]


@given(st.lists(st.tuples(KINDS, st.binary(max_size=300))), st.integers(1, 400))
def test_frames_survive_any_cut(sent: list[tuple[bytes, bytes]], step: int) -> None:
    stream = b"".join(frames.frame(*item) for item in sent)
    decoder, got = Decoder(), []
    for begin in range(0, len(stream), step):
        got += [(kind, bytes(data)) for kind, data in decoder.pieces(memoryview(stream[begin : begin + step]))]
    merged = joined(got)
    assert merged == joined(sent)


@given(st.binary(min_size=5, max_size=200))
def test_garbage_is_refused_or_is_frames(data: bytes) -> None:
    try:
        for kind, _ in Decoder().pieces(memoryview(data)):
            assert kind in (DATA, ERRORS, END, WINDOW, EXIT, TROUBLE)
    except FrameError:
        pass


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    for kind, length in ((DATA, frames.PIECE_BYTES + 1), (TROUBLE, 1 << 20), (b"?", 0)):
        head = kind + length.to_bytes(4, "big")
        with pytest.raises(FrameError):
            list(Decoder().pieces(memoryview(head)))


def test_sizes_and_codes_read_as_they_were_written() -> None:
    (piece,) = Decoder().pieces(memoryview(frames.window(41, 100_000)))
    assert frames.window_of(piece.data) == (41, 65_535)
    (piece,) = Decoder().pieces(memoryview(frames.exit_frame(-9)))
    assert frames.exit_of(piece.data) == -9
    with pytest.raises(FrameError):
        frames.window_of(memoryview(b"123"))


def test_nothing_is_read_before_the_last_piece_has_gone() -> None:
    """A sink that takes nothing stops its source after one buffer."""
    source, feeding = socket.socketpair()
    sink, draining = socket.socketpair()
    feeding.setblocking(False)
    duct = Duct(SocketEnd(source), SocketEnd(sink))
    sent = 0
    for _ in range(200):
        try:
            sent += feeding.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        duct.turn()
    got = 0
    draining.setblocking(False)
    while got < sent:
        duct.turn()
        try:
            got += len(draining.recv(1 << 16))
        except BlockingIOError:
            pass
    assert got == sent < 4 << 20
    for end in (source, feeding, sink, draining):
        end.close()


def test_bytes_of_several_sources_arrive_at_their_ends() -> None:
    near, far = socket.socketpair()
    pairs = {kind: socket.socketpair() for kind in (DATA, ERRORS)}
    outgoing = Outgoing(SocketEnd(near), {kind: SocketEnd(pair[0]) for kind, pair in pairs.items()})
    controls: list[bytes] = []
    sinks = {kind: socket.socketpair() for kind in (DATA, ERRORS)}
    ends = {kind: SocketEnd(pair[0]) for kind, pair in sinks.items()}
    incoming = Incoming(SocketEnd(far), ends, lambda kind, _: controls.append(kind))
    for kind, (_, writer) in pairs.items():
        writer.sendall(kind * 1000)
        writer.close()
    outgoing.send(frames.window(1, 2))
    outgoing.send(frames.window(3, 4))
    while not outgoing.drained:
        outgoing.turn()
        incoming.turn()
    incoming.turn()
    for kind, (_, reader) in sinks.items():
        assert reader.recv(5000) == kind * 1000
    # A size that another one follows before it was sent is not sent.
    assert controls == [WINDOW, END]
    for end in (near, far, *(end for pair in (*pairs.values(), *sinks.values()) for end in pair)):
        end.close()
