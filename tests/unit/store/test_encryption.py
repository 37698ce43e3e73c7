"""Encryption at rest: without its key nothing can be read, and no cut or change goes unnoticed; ranges can be read."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import errors
from muster.store import encryption, sealed
from muster.store.backend import Store
from muster.store.encryption import CHUNK_BYTES, HEADER_BYTES, Damaged, plain_size
from muster.store.keyring import Key, KeyRing, WrongKey, load_key, load_keyring, new_key, read_config
from muster.store.pieces import pieces_of
from muster.store.streams import Streams
from muster.wire.encryption import NewKey
from muster.wire.node.agents import Chunk


def ring(*secrets_: bytes) -> KeyRing:
    first, *rest = [Key.of(secret) for secret in secrets_ or (b"k" * 32,)]
    return KeyRing(first, rest)


def store(folder: Path, *keys: bytes) -> Store:
    return Store(str(folder), ring=ring(*keys))


DATA = secrets.token_bytes(3 * CHUNK_BYTES + 777)
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 777]


@pytest.mark.parametrize("size", SIZES)
def test_an_object_comes_back_as_it_was_put(tmp_path: Path, size: int) -> None:
    data = DATA[:size]
    kept = store(tmp_path)
    assert kept.put("a/b", [data], sha256=hashlib.sha256(data).hexdigest()) == size
    assert kept.read("a/b") == data
    assert kept.size("a/b") == size
    assert [(name, found) for name, found, _ in kept.files()] == [("a/b", size)]
    raw = (tmp_path / "a/b").read_bytes()
    assert plain_size(len(raw)) == size
    assert size < 16 or data[:16] not in raw


@settings(max_examples=50, deadline=None)
@given(st.integers(0, len(DATA) + 10), st.integers(0, 2 * CHUNK_BYTES), st.integers(1, CHUNK_BYTES * 2))
def test_any_range_can_be_read(tmp_path_factory: pytest.TempPathFactory, start: int, length: int, piece: int) -> None:
    folder = tmp_path_factory.mktemp("store")
    kept = store(folder)
    kept.put("x", [DATA[at : at + piece] for at in range(0, len(DATA), piece)])
    with kept.open("x") as file:
        file.seek(start)
        assert file.read(length) == DATA[start : start + length]


LARGE = secrets.token_bytes(9 * 2**20 + 4321)


@pytest.mark.parametrize("piece", [CHUNK_BYTES, 2**20, len(LARGE)])
def test_a_large_object_comes_back_as_it_was_put(tmp_path: Path, piece: int) -> None:
    kept = store(tmp_path)
    pieces = [LARGE[at : at + piece] for at in range(0, len(LARGE), piece)]
    assert kept.put("x", pieces, sha256=hashlib.sha256(LARGE).hexdigest()) == len(LARGE)
    with kept.open("x") as file:
        assert b"".join(pieces_of(file)) == LARGE
        file.seek(2**20 + 1)
        assert b"".join(pieces_of(file, 3 * 2**20)) == LARGE[2**20 + 1 : 4 * 2**20 + 1]
        file.seek(-CHUNK_BYTES * 40, os.SEEK_END)
        assert file.read() == LARGE[-CHUNK_BYTES * 40 :]


@pytest.mark.parametrize("chunk", [0, 15, 16, 31, 40, 143])
def test_a_change_in_any_chunk_of_a_large_read_is_noticed(tmp_path: Path, chunk: int) -> None:
    kept = store(tmp_path)
    kept.put("x", [LARGE])
    with (tmp_path / "x").open("r+b") as raw:
        raw.seek(HEADER_BYTES + chunk * (CHUNK_BYTES + 16) + 99)
        raw.write(b"changed")
    with kept.open("x") as file, pytest.raises(Damaged, match="x is damaged"):
        for _ in pieces_of(file):
            pass


def test_a_large_read_of_what_was_cut_off_meanwhile_is_noticed(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.put("x", [LARGE])
    with kept.open("x") as file:
        os.truncate(tmp_path / "x", HEADER_BYTES + 20 * (CHUNK_BYTES + 16))
        with pytest.raises(Damaged, match="x is damaged"):
            file.read(2 * 2**20)


def test_a_reader_that_stops_half_way_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    kept = store(tmp_path)
    kept.put("x", [LARGE])
    with kept.open("x") as file:
        assert next(pieces_of(file)) == LARGE[: 2 * 2**20]
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


def test_a_large_object_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield LARGE
        yield LARGE
        raise ConnectionError("gone")

    before = set(threading.enumerate())
    kept = store(tmp_path)
    with pytest.raises(ConnectionError):
        kept.put("x", broken())
    with pytest.raises(errors.JobError, match="arrived damaged"):
        kept.put("x", [LARGE, LARGE], sha256=hashlib.sha256(LARGE).hexdigest())
    assert set(threading.enumerate()) == before
    assert list(tmp_path.iterdir()) == []


def test_small_objects_need_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise AssertionError("a thread for a small object")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for kept in (store(tmp_path / "sealed"), Store(str(tmp_path / "plain"))):
        kept.put("x", [DATA, DATA])
        assert kept.read("x") == DATA + DATA


def damaged(raw: bytes, how: str) -> bytes:
    sealed = CHUNK_BYTES + 16
    head, body = raw[:HEADER_BYTES], raw[HEADER_BYTES:]
    first, second, rest = body[:sealed], body[sealed : 2 * sealed], body[2 * sealed :]
    return {
        "a bit": head + bytes([first[0] ^ 1]) + body[1:],
        "cut at a chunk": head + first + second,
        "cut in a chunk": raw[:-5],
        "chunks exchanged": head + second + first + rest,
        "a chunk repeated": head + first + first + rest,
        "the header": raw[:30] + bytes([raw[30] ^ 1]) + raw[31:],
        "everything but the header": head,
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "a bit",
        "cut at a chunk",
        "cut in a chunk",
        "chunks exchanged",
        "a chunk repeated",
        "the header",
        "everything but the header",
    ],
)
def test_every_change_is_noticed(tmp_path: Path, how: str) -> None:
    kept = store(tmp_path)
    kept.put("x", [DATA])
    raw = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(damaged(raw, how))
    with pytest.raises((Damaged, WrongKey), match="x"):
        kept.read("x")


def test_a_wrong_key_is_told_by_its_id(tmp_path: Path) -> None:
    store(tmp_path).put("x", [b"data"])
    with pytest.raises(WrongKey, match=r"x is encrypted with the key [0-9a-f]{16}, and the workspace has"):
        store(tmp_path, b"o" * 32).read("x")
    with pytest.raises(errors.UserError, match="names no key"):
        Store(str(tmp_path)).read("x")


def test_what_was_written_before_stays_readable(tmp_path: Path) -> None:
    Store(str(tmp_path)).put("old", [b"plain"])
    kept = store(tmp_path)
    assert kept.read("old") == b"plain"
    assert kept.size("old") == 5


def test_a_new_key_rewraps_headers_and_leaves_bodies(tmp_path: Path) -> None:
    store(tmp_path, b"1" * 32).put("x", [DATA])
    body = (tmp_path / "x").read_bytes()[HEADER_BYTES:]
    both = store(tmp_path, b"2" * 32, b"1" * 32)
    assert both.rewrap("x")
    assert not both.rewrap("x")
    assert (tmp_path / "x").read_bytes()[HEADER_BYTES:] == body
    assert store(tmp_path, b"2" * 32).read("x") == DATA
    with pytest.raises(WrongKey):
        store(tmp_path, b"1" * 32).read("x")


def test_a_store_elsewhere_is_encrypted_too() -> None:
    name = f"memory://{secrets.token_hex(4)}"
    kept = Store(name, ring=ring(b"1" * 32))
    kept.put("a/x", [DATA])
    assert kept.read("a/x") == DATA
    assert DATA[:64] not in Store(name)._fs.cat_file(Store(name)._path("a/x"))
    assert Store(name, ring=ring(b"2" * 32, b"1" * 32)).rewrap("a/x")
    assert Store(name, ring=ring(b"2" * 32)).read("a/x") == DATA


def test_growing_streams_are_encrypted_and_read_from_anywhere(tmp_path: Path) -> None:
    streams = Streams(tmp_path, ring())
    text = b"".join(b"line %06d\n" % number for number in range(20_000))
    offset = 0
    for size in [1, 10, 100, 70_000, 5, 100_000, len(text)]:
        piece = text[offset : offset + size]
        streams.append([Chunk("run", 1, "user_logs/a.txt", offset, piece)])
        offset += len(piece)
    # Sent again after a lost answer: nothing is added.
    assert streams.append([Chunk("run", 1, "user_logs/a.txt", 0, text[:50])]) == {
        ("run", 1, "user_logs/a.txt"): len(text)
    }
    assert b"line 000001" not in (tmp_path / "run/attempts/1/user_logs/a.txt").read_bytes()
    for reader in (streams, Streams(tmp_path, ring())):
        assert reader.length("run", 1, "user_logs/a.txt") == len(text)
        assert list(reader.names("run", 1)) == [("user_logs/a.txt", len(text))]
        for start, length in [(0, 20), (9, 3), (70_100, 66_000), (len(text) - 5, 100), (0, len(text))]:
            assert reader.read("run", 1, "user_logs/a.txt", start, length) == text[start : start + length]
        with reader.open("runs/run/attempts/1/user_logs/a.txt") as file:
            assert file.read() == text


def test_a_record_that_a_death_cut_off_is_written_again(tmp_path: Path) -> None:
    Streams(tmp_path, ring()).append(
        [Chunk("run", 1, "user_logs/a", 0, b"first"), Chunk("run", 1, "user_logs/a", 5, b"second")]
    )
    path = tmp_path / "run/attempts/1/user_logs/a"
    os.truncate(path, path.stat().st_size - 3)
    streams = Streams(tmp_path, ring())
    assert streams.length("run", 1, "user_logs/a") == 5
    streams.append([Chunk("run", 1, "user_logs/a", 5, b"again")])
    assert streams.read("run", 1, "user_logs/a", 0, 100) == b"firstagain"


def test_a_stream_that_began_plain_stays_plain(tmp_path: Path) -> None:
    Streams(tmp_path).append([Chunk("run", 1, "user_logs/a", 0, b"plain ")])
    streams = Streams(tmp_path, ring())
    streams.append([Chunk("run", 1, "user_logs/a", 6, b"still")])
    assert streams.read("run", 1, "user_logs/a", 0, 100) == b"plain still"


def test_streams_get_a_new_key(tmp_path: Path) -> None:
    Streams(tmp_path, ring(b"1" * 32)).append([Chunk("run", 1, "user_logs/a", 0, b"text")])
    assert Streams(tmp_path, ring(b"2" * 32, b"1" * 32)).rewrap() == 1
    assert Streams(tmp_path, ring(b"2" * 32)).read("run", 1, "user_logs/a", 0, 10) == b"text"


def test_keys_come_from_a_file_a_variable_or_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = new_key()
    (tmp_path / "key").write_text(f"{text}\n")
    monkeypatch.setitem(os.environ, "MUSTER_TEST_STORE_KEY", base64.b64decode(text).hex())
    sources = [{"key_file": "key"}, {"key_env": "MUSTER_TEST_STORE_KEY"}, {"key_command": f"cat {tmp_path}/key"}]
    assert {load_key(NewKey(**source), tmp_path).id for source in sources} == {Key.of(base64.b64decode(text)).id}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"encryption": {}}, "must name one source"),
        ({"encryption": {"key_file": "none"}}, "none cannot be read"),
        ({"encryption": {"key_env": "MUSTER_NOT_SET"}}, "MUSTER_NOT_SET"),
        ({"encryption": {"key_command": "echo short"}}, "what key_command prints holds no key"),
        ({"encryption": {"key_command": "echo secret-words; exit 3"}}, "ended with 3"),
        ({"encryption": {"keyfile": "x"}}, "unknown key 'keyfile'"),
        ({"encryption": "x"}, "must be a mapping"),
    ],
)
def test_what_names_no_key_is_refused(tmp_path: Path, config: dict[str, object], words: str) -> None:
    with pytest.raises(errors.UserError, match=words) as caught:
        load_keyring(read_config(config), tmp_path)
    assert "secret-words" not in str(caught.value)


class TestRotationMeetsAnUpload:
    """A key is changed while a file is written: the file is not lost, whatever comes first."""

    OLD, NEW = Key.of(b"o" * 32), Key.of(b"n" * 32)

    def test_an_upload_under_way_has_the_new_key_at_its_end(self, tmp_path: Path) -> None:
        ring = KeyRing(self.OLD)
        store = Store(str(tmp_path), ring=ring)

        def pieces() -> Iterator[bytes]:
            yield b"x" * 200_000
            # The rotation lists what is there, and this file has no name yet.
            ring.lead(self.NEW)
            assert not [store.rewrap(name) for name, _, _ in store.files() if ".part-" not in name]
            assert ring.is_writing_with_older(), "so the older key stays named"
            yield b"y" * 200_000

        store.put("a/b", pieces())
        assert not ring.is_writing_with_older()
        later = Store(str(tmp_path), ring=KeyRing(self.NEW))
        assert later.read("a/b") == b"x" * 200_000 + b"y" * 200_000

    def test_one_that_fails_is_not_waited_for(self, tmp_path: Path) -> None:
        ring = KeyRing(self.OLD)
        store = Store(str(tmp_path), ring=ring)

        def pieces() -> Iterator[bytes]:
            yield b"x"
            ring.lead(self.NEW)
            raise ConnectionError

        with pytest.raises(ConnectionError):
            store.put("a", pieces())
        assert not ring.is_writing_with_older()

    def test_a_log_that_begins_meanwhile_has_the_new_key(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ring = KeyRing(self.OLD)
        streams = Streams(tmp_path, ring)
        begin = sealed.new_header

        def late(ring: KeyRing, kind: bytes, name: str) -> Any:
            made = begin(ring, kind, name)
            ring.lead(self.NEW)
            return made

        monkeypatch.setattr(sealed, "new_header", late)
        streams.append([Chunk("r", 1, "user_logs/a", 0, b"hello")])
        monkeypatch.undo()
        assert not ring.is_writing_with_older()
        assert Streams(tmp_path, KeyRing(self.NEW)).read("r", 1, "user_logs/a", 0, 9) == b"hello"


def test_files_cannot_be_exchanged(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.put("runs/a/model", [b"a" * 100_000])
    made.put("runs/b/model", [b"b" * 100_000])
    first, second = tmp_path / "runs/a/model", tmp_path / "runs/b/model"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    for name in ("runs/a/model", "runs/b/model"):
        with pytest.raises((WrongKey, Damaged)):
            made.read(name)


def test_logs_cannot_be_exchanged(tmp_path: Path) -> None:
    streams = Streams(tmp_path, ring())
    streams.append([Chunk(run, 1, "user_logs/a", 0, run.encode() * 10) for run in ("r", "s")])
    streams.path("r", 1, "user_logs/a").write_bytes(streams.path("s", 1, "user_logs/a").read_bytes())
    with pytest.raises((WrongKey, Damaged)):
        Streams(tmp_path, ring()).read("r", 1, "user_logs/a", 0, 10)


def test_a_folder_that_was_moved_as_a_whole_can_be_read(tmp_path: Path) -> None:
    store(tmp_path / "one").put("a/b", [b"x"])
    Streams(tmp_path / "one" / "runs", ring()).append([Chunk("r", 1, "user_logs/a", 0, b"y")])
    (tmp_path / "one").rename(tmp_path / "two")
    assert store(tmp_path / "two").read("a/b") == b"x"
    assert Streams(tmp_path / "two" / "runs", ring()).read("r", 1, "user_logs/a", 0, 1) == b"y"


def test_files_of_earlier_versions_are_read_and_bound_when_the_key_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "_BOUND", b"\0\0\0")
    monkeypatch.setattr(encryption, "_bound_to", lambda about, name: about)
    store(tmp_path, b"o" * 32).put("a", [b"old"])
    monkeypatch.undo()
    assert store(tmp_path, b"o" * 32).read("a") == b"old"
    assert store(tmp_path, b"n" * 32, b"o" * 32).rewrap("a")
    assert store(tmp_path, b"n" * 32).read("a") == b"old"
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(WrongKey):
        store(tmp_path, b"n" * 32).read("b")


class TestLogsThatHaveEnded:
    """A log that grows ends anywhere; one that has ended ends where it did."""

    def ended(self, folder: Path, *pieces: bytes) -> tuple[Path, list[int]]:
        """A log in several records, and where each ends in the file."""
        streams, offset, ends = Streams(folder, ring()), 0, []
        path = folder / "run/attempts/1/user_logs/a"
        for piece in pieces:
            streams.append([Chunk("run", 1, "user_logs/a", offset, piece)])
            offset += len(piece)
            ends.append(path.stat().st_size)
        streams.finish("run", 1)
        assert streams.read("run", 1, "user_logs/a", 0, 100) == b"".join(pieces)
        return path, ends

    @pytest.mark.parametrize("record", [0, 1, 2])
    def test_one_that_was_cut_at_a_record_is_noticed(self, tmp_path: Path, record: int) -> None:
        path, ends = self.ended(tmp_path, b"first ", b"second ", b"third")
        os.truncate(path, ends[record])
        streams = Streams(tmp_path, ring())
        with pytest.raises(Damaged, match="cut off"):
            streams.read("run", 1, "user_logs/a", 0, 100)
        with pytest.raises(Damaged, match="cut off"):
            streams.open("runs/run/attempts/1/user_logs/a")

    def test_its_end_cannot_be_moved_or_made_up(self, tmp_path: Path) -> None:
        path, ends = self.ended(tmp_path, b"first ", b"second")
        whole = path.read_bytes()
        for body in (whole[: ends[0]] + whole[ends[1] :], whole[: ends[0]] + b"\0" * 32, whole[:80]):
            path.write_bytes(body)
            with pytest.raises(Damaged, match="cut off"):
                Streams(tmp_path, ring()).read("run", 1, "user_logs/a", 0, 100)
        # As if it still grew: the header is sealed too.
        path.write_bytes(whole[:8] + b"\1" + whole[9 : ends[0]])
        with pytest.raises(errors.UserError):
            Streams(tmp_path, ring()).read("run", 1, "user_logs/a", 0, 100)
        path.write_bytes(whole)
        assert Streams(tmp_path, ring()).read("run", 1, "user_logs/a", 0, 100) == b"first second"

    def test_it_takes_what_comes_late_and_a_new_key(self, tmp_path: Path) -> None:
        self.ended(tmp_path, b"first ")
        streams = Streams(tmp_path, ring(b"2" * 32, b"k" * 32))
        assert streams.append([Chunk("run", 1, "user_logs/a", 6, b"late")])[("run", 1, "user_logs/a")] == 10
        assert streams.read("run", 1, "user_logs/a", 0, 100) == b"first late"
        streams.finish("run", 1)
        streams.rewrap()
        again = Streams(tmp_path, ring(b"2" * 32))
        assert (
            again.read("run", 1, "user_logs/a", 0, 100) == b"first late" and again.length("run", 1, "user_logs/a") == 10
        )
