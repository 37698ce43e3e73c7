"""Staging from a source in memory: what is fetched, resumed, noticed and refused."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.storage.connectors.base import BLOCK_BYTES, SourceChanged, TransferError
from muster.storage.staging import cache as cache_module
from muster.storage.staging.cache import Cache
from muster.storage.staging.download import Journal, connections, fetch
from muster.storage.staging.model import Progress, Unwanted, check_entries, stored_path, tree_digest
from muster.storage.staging.stage import stage
from muster.wire.data.access import FileEntry


class Memory:
    """A source whose files are in memory; `before_read` may change them or break the connection."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.version = 1
        self.reads: list[tuple[str, int]] = []
        self.before_read: Callable[[str, int], None] = lambda path, offset: None
        self._lock = threading.Lock()

    label = "memory"

    def stat(self, path: str) -> None:
        return None

    def listing(self, folder: str = "") -> list[FileEntry]:
        return [FileEntry(path, len(data), etag=str(self.version)) for path, data in self.files.items()]

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        with self._lock:
            self.before_read(entry.path, offset)
            self.reads.append((entry.path, offset))
            if entry.etag and entry.etag != str(self.version):
                raise SourceChanged(entry.path)
        view[:] = self.files[entry.path][offset : offset + len(view)]


LARGE = b"".join(bytes([number]) * BLOCK_BYTES for number in range(3)) + b"tail"


def staged(source: Memory, cache: Cache, announced: list[FileEntry] | None = None) -> tuple[dict[str, bytes], Progress]:
    progress = Progress()
    held, entries = stage(source, "memory:x", "input 'x'", announced, cache, progress)
    try:
        assert tree_digest(entries) == held.digest
        return {entry.path: (held.data / stored_path(entry)).read_bytes() for entry in entries}, progress
    finally:
        held.release()


def trees(cache: Cache) -> list[Path]:
    return [path for path in (cache.root / "trees").iterdir() if not path.name.startswith(".")]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 1 << 30)


def test_small_and_large_files_arrive_as_they_are(cache: Cache) -> None:
    source = Memory({"a/b.txt": b"text", "empty": b"", "large.bin": LARGE})
    found, progress = staged(source, cache)
    assert found == source.files
    assert (progress.done_bytes, progress.done_files) == (len(LARGE) + 4, 3)


def test_many_small_files_are_asked_for_over_more_connections_than_large_blocks() -> None:
    blocks = connections([BLOCK_BYTES] * 100)
    assert connections([100_000] * 20_000) == 16 > blocks >= 4
    assert connections([1] * 100 + [BLOCK_BYTES] * 100) == blocks
    assert [connections([]), connections([5]), connections([BLOCK_BYTES])] == [1, 1, 1]


def test_the_second_time_nothing_is_read(cache: Cache) -> None:
    source = Memory({"large.bin": LARGE})
    staged(source, cache)
    source.reads.clear()
    found, _ = staged(source, cache)
    assert found == source.files
    assert not source.reads


def test_the_same_content_from_elsewhere_is_kept_once(cache: Cache) -> None:
    staged(Memory({"a": b"same"}), cache)
    held, _ = stage(Memory({"a": b"same"}), "memory:other", "input", None, cache, Progress())
    held.release()
    assert len(trees(cache)) == 1
    assert not list((cache.root / "trees/.partial").iterdir())


def test_what_was_fetched_before_a_break_is_not_fetched_again(cache: Cache) -> None:
    source = Memory({"first": b"1", "large.bin": LARGE})

    def breaks(path: str, offset: int) -> None:
        if offset == 3 * BLOCK_BYTES:
            raise TransferError("data_unavailable", "the connection broke")

    source.before_read = breaks
    with pytest.raises(TransferError, match="broke"):
        staged(source, cache)
    done = set(source.reads)
    assert done
    source.before_read = lambda path, offset: None
    source.reads.clear()
    found, progress = staged(source, cache)
    assert found == source.files
    assert not done & set(source.reads)
    assert progress.resumed_bytes > 0


def test_a_journal_that_was_cut_in_a_line_is_read_to_there(tmp_path: Path) -> None:
    source = Memory({"a": b"1", "b": b"2"})
    path = tmp_path / "journal"
    journal = Journal(path)
    fetch(source, source.listing(), tmp_path / "data", journal, Progress())
    journal.close()
    path.write_bytes(path.read_bytes()[:-20])
    source.reads.clear()
    again = Journal(path)
    hashes = fetch(source, source.listing(), tmp_path / "data", again, Progress())
    again.close()
    assert hashes == {name: hashlib.sha256(data).hexdigest() for name, data in source.files.items()}
    assert len(source.reads) == 1


def test_a_source_that_changes_once_is_fetched_from_the_start(cache: Cache) -> None:
    source = Memory({"large.bin": LARGE})

    def changes(path: str, offset: int) -> None:
        if offset == 2 * BLOCK_BYTES and source.version == 1:
            source.version, source.files = 2, {"large.bin": LARGE[::-1]}

    source.before_read = changes
    found, _ = staged(source, cache)
    assert found == {"large.bin": LARGE[::-1]}
    assert not list((cache.root / "trees/.partial").iterdir())


def test_a_source_that_keeps_changing_is_told_so(cache: Cache) -> None:
    source = Memory({"a": b"1"})

    def changes(path: str, offset: int) -> None:
        source.version += 1

    source.before_read = changes
    with pytest.raises(TransferError, match="input 'x': a changed while it was being read, twice") as caught:
        staged(source, cache)
    assert caught.value.code == "data_unavailable"


def test_bytes_that_are_not_what_was_announced_are_refused(cache: Cache) -> None:
    source = Memory({"a": b"other"})
    announced = [FileEntry("a", 5, hashlib.sha256(b"right").hexdigest(), "1")]
    with pytest.raises(TransferError, match="damaged, or was changed after it was registered"):
        staged(source, cache, announced)
    assert not trees(cache)


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", "a/../../b", "a//b", "", ".", "a/\0"])
def test_a_path_that_would_leave_its_folder_is_refused(path: str) -> None:
    with pytest.raises(TransferError, match="leave the folder"):
        check_entries([FileEntry("good", 1), FileEntry(path, 1)], "the source")


def test_a_name_cannot_be_a_file_and_a_folder() -> None:
    with pytest.raises(TransferError, match="both a file"):
        check_entries([FileEntry("a", 1), FileEntry("a/b", 1)], "the source")
    assert [entry.path for entry in check_entries([FileEntry("a", 0), FileEntry("a/b", 1)], "s")] == ["a/b"]


def test_a_stopped_transfer_ends(cache: Cache) -> None:
    source = Memory({"large.bin": LARGE})
    progress = Progress()
    progress.stop.set()
    with pytest.raises(Unwanted):
        stage(source, "memory:x", "input", None, cache, progress)


def test_what_cannot_fit_is_refused_before_a_byte_is_read(tmp_path: Path) -> None:
    source = Memory({"large.bin": LARGE})
    with pytest.raises(TransferError, match=r"input 'x' needs 24.00 MiB.* limit is 10.00 MiB") as caught:
        staged(source, Cache(tmp_path / "cache", 10 << 20))
    assert caught.value.code == "disk_full"
    assert "MUSTER_CACHE_BYTES" in caught.value.next
    assert "freeing space does not help" in caught.value.next
    assert not source.reads


def test_the_least_recently_used_goes_first_and_what_is_used_stays(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 25)
    sources = {name: Memory({name: name.encode() * 10}) for name in "abc"}
    used, _ = stage(sources["a"], "memory:a", "input", None, cache, Progress())
    kept, _ = stage(sources["b"], "memory:b", "input", None, cache, Progress())
    kept.release()
    newer, _ = stage(sources["c"], "memory:c", "input", None, cache, Progress())
    assert used.data.exists() and newer.data.exists() and not kept.data.exists()
    with pytest.raises(TransferError, match="in use by running jobs"):
        stage(Memory({"d": b"d" * 10}), "memory:d", "input", None, cache, Progress())
    used.release()
    newer.release()


def test_a_file_that_a_job_spoiled_is_not_given_to_the_next(cache: Cache) -> None:
    source = Memory({"a": b"right"})
    held, _ = stage(source, "memory:x", "input", None, cache, Progress())
    spoiled = held.data / "a"
    held.release()
    spoiled.chmod(0o600)
    spoiled.write_bytes(b"wrong")
    found, _ = staged(source, cache)
    assert found == {"a": b"right"}


def test_after_a_restart_of_the_machine_files_are_hashed_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Memory({"a": b"right"})
    held, _ = stage(source, "memory:x", "input", None, cache, Progress())
    held.release()
    hashed: list[Path] = []
    real = cache_module.sha256_of
    monkeypatch.setattr(cache_module, "_boot_id", lambda: "another")
    monkeypatch.setattr(cache_module, "sha256_of", lambda path: hashed.append(path) or real(path))
    for _ in range(2):
        again = cache.hold(held.digest)
        assert again is not None
        again.release()
    assert len(hashed) == 1


def test_a_removal_that_was_cut_off_is_finished(cache: Cache) -> None:
    left = cache.root / "trees/.gone" / "tree.1234" / "data"
    left.mkdir(parents=True)
    (left / "a").write_bytes(b"x")
    left.chmod(0o555)
    cache.make_room(0)
    assert not list((cache.root / "trees/.gone").iterdir())


def test_folders_of_an_earlier_layout_go_once(tmp_path: Path) -> None:
    for name in ("partial/key/data", "locks", "gone/tree.1"):
        (tmp_path / name).mkdir(parents=True)
    Cache(tmp_path, 1 << 30)
    assert [path.name for path in tmp_path.iterdir()] == ["sources"]
