"""A cache that somebody damaged by hand, or with an unfinished download in it: no wrong byte reaches a job."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from muster.storage.connectors.base import BLOCK_BYTES, TransferError
from muster.storage.connectors.files import Folder
from muster.storage.staging import cache as caches
from muster.storage.staging.cache import Cache
from muster.storage.staging.download import Damaged, Journal, fetch
from muster.storage.staging.model import Progress
from muster.storage.staging.stage import stage
from muster.wire.data.access import FileEntry

FILES = {"a.txt": b"first" * 100, "sub/b.txt": b"second" * 100}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for path, data in FILES.items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_bytes(data)
    return tmp_path / "source"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 10_000_000)


def staged(source: Path, cache: Cache) -> dict[str, bytes]:
    held, _ = stage(Folder(str(source)), str(source), "input 'x'", None, cache, Progress())
    try:
        return {path: (held.data / path).read_bytes() for path in held.tree.files}
    finally:
        held.release()


def only_tree(cache: Cache) -> Path:
    return cache.root / "trees" / cache.trees()[0].digest


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def wrong_byte(cache: Cache) -> None:
    overwrite(only_tree(cache) / "data" / "a.txt", b"FIRST" * 100)


def no_list(cache: Cache) -> None:
    (only_tree(cache) / "tree.json").write_bytes(b"\xff{")


def no_file(cache: Cache) -> None:
    (only_tree(cache) / "data" / "a.txt").unlink()


def no_data(cache: Cache) -> None:
    shutil.rmtree(only_tree(cache) / "data")


@pytest.mark.parametrize("forgets", [False, True], ids=["known", "forgotten"])
@pytest.mark.parametrize("damage", [wrong_byte, no_list, no_file, no_data])
def test_a_damaged_tree_is_made_anew(
    source: Path, cache: Cache, damage: Callable[[Cache], None], forgets: bool
) -> None:
    assert staged(source, cache) == FILES
    damage(cache)
    if forgets:
        shutil.rmtree(cache.root / "sources")
        cache = Cache(cache.root, 10_000_000)
    assert staged(source, cache) == FILES


@pytest.mark.parametrize("text", [b"", b"../../source", b"..", b"\xff\xfe", b"0" * 64])
def test_a_damaged_memory_of_sources_leads_nowhere(source: Path, cache: Cache, text: bytes) -> None:
    assert staged(source, cache) == FILES
    for known in (cache.root / "sources").iterdir():
        known.write_bytes(text)
    assert staged(source, cache) == FILES
    assert (source / "a.txt").exists()


@pytest.mark.parametrize("same_size", [True, False])
def test_what_an_earlier_try_had_finished_is_fetched_again_where_it_was_changed(
    source: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch, same_size: bool
) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Cache, "commit", cut_off)
        staged(source, cache)
    (partial,) = (cache.root / "trees" / ".partial").iterdir()
    overwrite(partial / "data" / "a.txt", b"FIRST" * (100 if same_size else 90))
    assert staged(source, cache) == FILES


def test_what_an_earlier_try_had_finished_and_nobody_changed_is_kept(
    source: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Cache, "commit", cut_off)
        staged(source, cache)
    progress = Progress()
    held, _ = stage(Folder(str(source)), str(source), "input 'x'", None, cache, progress)
    held.release()
    assert progress.resumed_bytes == sum(map(len, FILES.values()))


class Large:
    """A source of one file of some blocks, that breaks off or sends wrong bytes."""

    label = "memory"

    def __init__(self) -> None:
        self.data = random.Random(3).randbytes(3 * BLOCK_BYTES)
        self.entry = FileEntry("big", len(self.data), etag="1")
        self.left = 2
        self.lies = False

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        self.left -= 1
        if self.left < 0:
            raise TransferError("data_unavailable", "cut")
        view[:] = bytes(len(view)) if self.lies else self.data[offset : offset + len(view)]

    def fetch(self, folder: Path, entry: FileEntry | None = None) -> bytes:
        journal = Journal(folder / "journal.jsonl")
        try:
            fetch(self, [entry or self.entry], folder / "data", journal, Progress())  # type: ignore[arg-type]
        finally:
            journal.close()
        return (folder / "data" / "big").read_bytes()


def test_blocks_of_an_earlier_try_that_were_changed_are_noticed_and_fetched_again(tmp_path: Path) -> None:
    source = Large()
    with pytest.raises(TransferError, match="cut"):
        source.fetch(tmp_path)
    source.left = 100
    done = json.loads((tmp_path / "journal.jsonl").read_text().split("\n")[1])["block"]
    with (tmp_path / "data" / "big").open("r+b") as file:
        file.seek(done * BLOCK_BYTES)
        file.write(b"changed")
    with pytest.raises(Damaged, match="big was changed on this machine"):
        source.fetch(tmp_path)
    # It does not go on from that for ever.
    assert source.fetch(tmp_path) == source.data


def test_a_large_file_that_arrived_wrong_is_fetched_again_from_its_beginning(tmp_path: Path) -> None:
    source = Large()
    source.left, source.lies = 100, True
    announced = replace(source.entry, sha256=hashlib.sha256(source.data).hexdigest())
    with pytest.raises(Damaged, match="was announced"):
        source.fetch(tmp_path, announced)
    source.lies = False
    assert source.fetch(tmp_path, announced) == source.data


def test_a_cache_that_is_too_small_says_so_also_while_others_use_it(source: Path, tmp_path: Path) -> None:
    small = Cache(tmp_path / "small", 1_500)
    held, _ = stage(Folder(str(source)), str(source), "input 'x'", None, small, Progress())
    other = tmp_path / "other"
    other.mkdir()
    (other / "c").write_bytes(bytes(1_000))
    with pytest.raises(TransferError, match="in use by running jobs") as refused:
        staged(other, small)
    assert refused.value.code == "disk_full" and "Wait for the jobs" in refused.value.next
    assert held.data.joinpath("a.txt").read_bytes() == FILES["a.txt"]
    held.release()
    # As soon as nobody uses it, it makes room.
    assert staged(other, small) == {"c": bytes(1_000)}
    assert len(small.trees()) == 1
    assert not list((small.root / "trees" / ".partial").iterdir())


def test_the_memory_of_sources_is_a_hash(cache: Cache) -> None:
    (cache.root / "sources" / "key").write_text(json.dumps("x"))
    assert caches.read_source(cache.root, "key") is None
