"""The offset protocol: whatever is lost on the way, the server has every byte once and in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.agent.ship.streams import PUNCH_STEP, TAIL_BYTES, Stream, covered, share


class File:
    """A log and the server's copy of it."""

    def __init__(self, limit: int | None) -> None:
        self.content = b""
        self.server = b""
        self.durable = 0
        self.stream = Stream("user_logs/x", limit)

    def append(self, data: bytes) -> None:
        self.content += data

    def ship(self, room: int, arrives: bool, answered: bool) -> None:
        self.stream.update_size(len(self.content))
        piece = self.stream.next_piece(room)
        if piece is None:
            return
        data = piece.mark or self.content[piece.position : piece.position + piece.size]
        assert len(data) == piece.size
        if arrives and piece.offset <= len(self.server):
            self.server += data[len(self.server) - piece.offset :]
        if arrives and answered:
            self.durable = len(self.server)
            self.stream.acknowledge(len(self.server))
            self.stream.remember(piece.offset, data)

    def crash(self, size: int) -> None:
        """The server forgets what it took and did not acknowledge."""
        self.server = self.server[: max(size, self.durable)]


steps = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=50).map(lambda data: ("append", data)),
        st.tuples(st.just("ship"), st.integers(1, 40), st.booleans(), st.booleans()),
        st.just(("new agent",)),
        st.integers(0, 30).map(lambda size: ("server crashes", size)),
    ),
    max_size=40,
)


@given(steps)
def test_every_byte_arrives_once_and_in_order(script: list[tuple[object, ...]]) -> None:
    file = File(None)
    _play(file, script)
    while file.server != file.content:
        before = len(file.server), file.stream.acked
        file.ship(100, True, True)
        assert (len(file.server), file.stream.acked) != before, "no progress"
    file.ship(100, True, True)
    assert file.server == file.content
    assert file.stream.pending == 0


@given(steps, st.integers(1, 60))
def test_a_limited_log_is_a_prefix_and_one_mark(script: list[tuple[object, ...]], limit: int) -> None:
    file = File(limit)
    _play(file, script)
    for _ in range(200):
        file.ship(100, True, True)
    if len(file.content) <= limit:
        assert file.server == file.content
    else:
        assert file.server == file.content[:limit] + file.stream.mark
    assert file.stream.pending == 0


def _play(file: File, script: list[tuple[object, ...]]) -> None:
    for step in script:
        if step[0] == "append":
            file.append(step[1])  # type: ignore[arg-type]
        elif step[0] == "ship":
            file.ship(*step[1:])  # type: ignore[arg-type]
        elif step[0] == "new agent":
            file.stream = Stream("user_logs/x", file.stream.limit)
        else:
            file.crash(int(step[1]))  # type: ignore[call-overload]


def test_a_server_that_has_less_than_it_said_gets_it_again() -> None:
    stream = Stream("user_logs/x")
    stream.update_size(20)
    stream.acknowledge(10)
    stream.acknowledge(4)
    piece = stream.next_piece(100)
    assert piece is not None
    assert (piece.offset, piece.position, piece.size) == (4, 4, 16)


def test_a_truncated_file_goes_on_where_the_server_is() -> None:
    file = File(None)
    file.append(b"first line\n")
    file.ship(100, True, True)
    file.content = b"new\n"
    file.ship(100, True, True)
    assert file.server == b"first line\nnew\n"


def test_the_end_of_what_was_sent_is_remembered() -> None:
    stream = Stream("user_logs/x")
    stream.update_size(100)
    stream.acknowledge(100)
    stream.remember(0, b"a" * 90 + b"b" * 10)
    assert stream.tail == (b"a" * 90 + b"b" * 10)[-TAIL_BYTES:]
    stream.acknowledge(150)
    assert stream.tail == b"", "the server has bytes that were not seen here"


def test_only_whole_steps_behind_what_was_delivered_are_given_back() -> None:
    stream = Stream("user_logs/x")
    stream.update_size(5 * PUNCH_STEP)
    stream.acknowledge(2 * PUNCH_STEP + 500)
    assert stream.punchable() == (0, 2 * PUNCH_STEP)
    stream.punched = 2 * PUNCH_STEP
    assert stream.punchable() is None


def test_past_the_limit_everything_is_given_back() -> None:
    stream = Stream("user_logs/x", limit=10)
    stream.update_size(5 * PUNCH_STEP + 100)
    stream.acknowledge(10)
    assert stream.punchable() == (0, 5 * PUNCH_STEP)


def test_bytes_that_were_given_back_are_not_sent_as_zeros_to_a_server_that_lost_them() -> None:
    stream = Stream("user_logs/x")
    stream.update_size(3 * PUNCH_STEP)
    stream.acknowledge(3 * PUNCH_STEP)
    stream.punched = 2 * PUNCH_STEP
    stream.acknowledge(10)
    piece = stream.next_piece(1 << 30)
    assert piece is not None
    assert (piece.offset, piece.position, piece.size) == (10, 2 * PUNCH_STEP, PUNCH_STEP)


@given(st.lists(st.integers(0, 1 << 24), max_size=8), st.integers(1, 1 << 23))
@settings(max_examples=50)
def test_a_batch_never_exceeds_its_room_and_starves_nobody_short(sizes: list[int], room: int) -> None:
    streams = []
    for number, size in enumerate(sizes):
        stream = Stream(f"user_logs/{number}")
        stream.update_size(size)
        streams.append(stream)
    chosen = share(streams, room)
    assert sum(piece.size for _, piece in chosen) <= room
    assert bool(chosen) == any(sizes)


def test_the_end_may_be_told_in_a_batch_only_when_no_server_could_refuse_its_bytes() -> None:
    fresh, later, done = Stream("a"), Stream("b"), Stream("c")
    fresh.update_size(10)
    assert covered([fresh], share([fresh], 100))
    assert not covered([fresh], share([fresh], 5))
    later.update_size(10)
    later.acknowledge(4)
    assert not covered([later], share([later], 100))
    done.update_size(10)
    done.acknowledge(10)
    assert covered([done], [])
