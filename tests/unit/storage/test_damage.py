"""A cache that somebody damaged by hand, or with an unfinished download in it: no wrong byte reaches a job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.storage.connectors.base import TransferError
from muster.storage.connectors.files import Folder
from muster.storage.staging import cache as caches
from muster.storage.staging.cache import Cache
from muster.storage.staging.model import Progress
from muster.storage.staging.stage import stage

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
