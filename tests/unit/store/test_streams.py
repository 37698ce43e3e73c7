"""Growing files: written once, in order, whatever the deliveries look like."""

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import JobError
from muster.store.backend import Store
from muster.store.keyring import Key, KeyRing
from muster.store.streams import Streams
from muster.wire.node.agents import Chunk

KEY = ("run", 1, "user_logs/std_log.txt")


def chunk(data: bytes, offset: int) -> Chunk:
    return Chunk(*KEY, offset, data)


def test_bytes_that_come_twice_are_written_once(tmp_path):
    streams = Streams(tmp_path)
    streams.append([chunk(b"hello ", 0)])
    lengths = streams.append([chunk(b"hello ", 0), chunk(b"lo world", 3)])
    assert lengths == {KEY: 11}
    assert streams.read(*KEY, 0, 100) == b"hello world"


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_same_bytes_delivered_twice_at_once_are_written_once(tmp_path, monkeypatch, encrypted):
    """Both deliveries would see the same length, were they not kept apart until the bytes are written."""
    streams = Streams(tmp_path, KeyRing(Key.of(b"k" * 32)) if encrypted else None)
    both_looked = threading.Barrier(2)
    size = streams._size

    def looking(path, stored):
        with suppress(threading.BrokenBarrierError):
            both_looked.wait(0.2)
        return size(path, stored)

    monkeypatch.setattr(streams, "_size", looking)
    with ThreadPoolExecutor(2) as pool:
        deliveries = [pool.submit(streams.append, [chunk(b"hello\n", 0)]) for _ in range(2)]
    assert [delivery.result() for delivery in deliveries] == [{KEY: 6}] * 2
    assert streams.read(*KEY, 0, 100) == b"hello\n"


def test_a_gap_is_not_filled_and_the_length_tells_where_to_go_on(tmp_path):
    streams = Streams(tmp_path)
    assert streams.append([chunk(b"later", 10)]) == {KEY: 0}
    assert streams.read(*KEY, 0, 100) == b""


def test_names_cannot_leave_their_folder(tmp_path):
    with pytest.raises(JobError, match="leaves its folder"):
        Streams(tmp_path).append([Chunk("../run", 1, "user_logs/x", 0, b"x")])
    with pytest.raises(JobError, match="leaves its folder"):
        Streams(tmp_path).append([Chunk("run", 1, "user_logs/../../x", 0, b"x")])


def test_what_an_attempt_printed_is_copied_to_a_store_that_lies_elsewhere(tmp_path):
    streams = Streams(tmp_path)
    streams.append([chunk(b"hello", 0)])
    elsewhere = Store(f"memory://{tmp_path.name}")
    streams.publish(elsewhere, "run", 1)
    assert elsewhere.read("runs/run/attempts/1/user_logs/std_log.txt") == b"hello"


@settings(deadline=None)
@given(st.binary(max_size=300), st.data())
def test_an_agent_that_follows_the_lengths_delivers_every_byte_once_and_in_order(content, data):
    """Lost answers, repeats, restarts from earlier offsets: the file is what was printed."""
    with tempfile.TemporaryDirectory() as folder:
        streams = Streams(Path(folder))
        believed = 0
        for _ in range(200):
            start = data.draw(st.integers(0, believed)) if data.draw(st.booleans()) else believed
            size = data.draw(st.integers(1, 64))
            lengths = streams.append([chunk(content[start : start + size], start)])
            if data.draw(st.booleans()):
                believed = lengths[KEY]
            if streams.length(*KEY) == len(content):
                break
        believed = streams.length(*KEY)
        streams.append([chunk(content[believed:], believed)])
        assert streams.read(*KEY, 0, 1000) == content


def test_what_grows_reaches_a_store_elsewhere_when_it_is_worth_it(tmp_path):
    store, streams = Store(f"memory://{tmp_path.name}"), Streams(tmp_path)
    name = "runs/r/attempts/1/user_logs/a"
    streams.append([Chunk("r", 1, "user_logs/a", 0, b"one")])
    assert list(streams.attempts()) == [("r", 1)]
    assert streams.publish(store, "r", 1, whole=False) == 1
    assert streams.publish(store, "r", 1) == 0
    streams.append([Chunk("r", 1, "user_logs/a", 3, b"x" * (5 << 20))])
    assert streams.publish(store, "r", 1, whole=False) == 1
    streams.append([Chunk("r", 1, "user_logs/a", 3 + (5 << 20), b"more")])
    # It would be written whole for four bytes: that waits for its end.
    assert streams.publish(store, "r", 1, whole=False) == 0
    assert Streams(tmp_path).publish(store, "r", 1) == 1
    assert store.read(name).endswith(b"more")
