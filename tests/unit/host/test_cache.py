"""A cache of folders: complete or absent, never removed while in use, and within its limits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.host.cache import Entry, FolderCache, HeldEntry, Size, UseLocks, make_room


@dataclass(frozen=True)
class Image:
    key: str
    size: int
    used_at: float


IMAGES = [Image("new", 10, 3.0), Image("old", 10, 1.0), Image("middle", 10, 2.0)]


def test_the_least_recently_used_goes_first() -> None:
    room = make_room(IMAGES, lambda image: True, lambda used: used <= 15)
    assert room.removed == ("old", "middle")
    assert (room.used_bytes, room.busy_bytes, room.enough) == (10, 0, True)


def test_what_is_in_use_or_kept_stays_and_counts() -> None:
    room = make_room(IMAGES, lambda image: image.key != "old", lambda used: used <= 5, keep={"middle"})
    assert room.removed == ("new",)
    assert (room.used_bytes, room.busy_bytes, room.enough) == (20, 10, False)


def test_nothing_is_tried_where_there_is_room() -> None:
    assert make_room(IMAGES, pytest.fail, lambda used: used <= 30).removed == ()


def test_use_locks_serve_entries_that_are_no_folders(tmp_path: Path) -> None:
    locks = UseLocks(tmp_path)
    assert locks.used_at("image") == 0.0 and not locks.is_used("image")
    with locks.hold("image"), locks.hold("image"):
        assert locks.is_used("image") and locks.claim("image") is None
    claimed = locks.claim("image")
    assert claimed is not None and locks.used_at("image") > 0.0
    claimed.release()


def cache_at(root: Path, limit_bytes: int = 1 << 30, **options: int) -> FolderCache[Size]:
    return FolderCache(root, limit_bytes, Size, **options)


def fill(cache: FolderCache[Size], key: str, size: int = 10, made_as: str | None = None) -> HeldEntry[Size]:
    """What code and data do: fetch beside the entries, then give it its name."""
    with cache.building(made_as or key):
        partial = cache.partial(made_as or key)
        partial.mkdir(exist_ok=True)
        (partial / "data").write_text(key)
        return cache.commit(key, Size(size), made_as)


def put(cache: FolderCache[Size], key: str, size: int = 10, used_at: float | None = None) -> None:
    fill(cache, key, size).lock.release()
    if used_at is not None:
        os.utime(cache.root / ".locks" / f"{key}.use", (used_at, used_at))


def keys(cache: FolderCache[Size]) -> list[str]:
    return [entry.key for entry in cache.entries()]


def test_an_entry_is_there_once_it_is_complete(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    with cache.building("env"):
        cache.folder("env").mkdir()
        assert cache.hold("env") is None and keys(cache) == []
        cache.complete("env", Size(5))
    entry = cache.find("env")
    assert entry is not None
    assert (entry.size, entry.record, entry.folder) == (5, Size(5), tmp_path / "env")
    assert entry.used_at > 0


def test_an_empty_cache_is_nothing_on_the_disk(tmp_path: Path) -> None:
    cache = cache_at(tmp_path / "cache")
    assert cache.find("a") is None and cache.hold("a") is None
    assert cache.entries() == [] and cache.sweep() == []
    assert not (tmp_path / "cache").exists()


def test_a_committed_entry_is_held_from_its_first_moment(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    held = fill(cache, "a")
    assert not cache.remove("a") and cache.is_used("a")
    held.lock.release()
    assert not cache.is_used("a")
    assert (held.entry.folder / "data").read_text() == "a"
    assert cache.remove("a")
    assert cache.find("a") is None


def test_the_same_content_by_two_ways_is_kept_once(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    with fill(cache, "digest", made_as="one").lock, fill(cache, "digest", made_as="two").lock:
        assert keys(cache) == ["digest"]
    assert list((tmp_path / ".partial").iterdir()) == []


def test_what_is_in_the_way_of_an_entry_is_an_error(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    (tmp_path / "a" / "inner").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        fill(cache, "a")
    assert not cache.is_used("a")
    assert cache.sweep() == ["a"]
    put(cache, "a")


def test_one_builds_and_the_others_hear_that_they_wait(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    built: list[int] = []
    waits = threading.Event()

    def build(number: int) -> None:
        with cache.building("a", waits.set):
            if cache.find("a") is None:
                cache.folder("a").mkdir()
                assert number != 0 or waits.wait(10)
                built.append(number)
                cache.complete("a", Size(1))

    first = threading.Thread(target=build, args=(0,))
    with cache.building("a"):
        first.start()
        # It waits for us; afterwards somebody may wait for it.
        assert waits.wait(10)
    second = threading.Thread(target=build, args=(1,))
    second.start()
    first.join(10)
    second.join(10)
    assert len(built) == 1


def test_an_entry_is_not_removed_while_another_process_uses_it(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    put(cache, "a")
    held = cache.hold("a")
    assert held is not None
    child = subprocess.Popen(
        [sys.executable, "-Sc", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[held.lock.descriptor],
    )
    held.lock.release()
    assert not cache.remove("a")
    child.communicate()
    assert cache.remove("a")


def test_an_entry_is_not_removed_while_somebody_builds_it(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    put(cache, "a")
    with cache.building("a"):
        assert not cache.remove("a")
        cache.discard("a")
        assert cache.find("a") is None


def test_an_unsound_entry_is_not_used(tmp_path: Path) -> None:
    asked: list[str] = []

    def sound(entry: Entry[Size]) -> bool:
        asked.append(entry.key)
        return (entry.folder / "data").exists()

    cache = FolderCache(tmp_path, 100, Size, is_sound=sound)
    put(cache, "a")
    assert cache.find("a") is not None
    (tmp_path / "a" / "data").unlink()
    assert cache.hold("a") is None and not cache.is_used("a")
    assert asked == ["a", "a"]
    assert keys(cache) == ["a"]


def test_a_check_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    def fail(entry: Entry[Size]) -> bool:
        raise OSError("the disk")

    cache = FolderCache(tmp_path, 100, Size, is_sound=fail)
    put(cache, "a")
    with pytest.raises(OSError, match="the disk"):
        cache.hold("a")
    assert not cache.is_used("a")


def test_pruning_goes_by_the_last_use(tmp_path: Path) -> None:
    cache = cache_at(tmp_path, limit_bytes=25)
    for number, key in enumerate("abc"):
        put(cache, key, used_at=1000.0 + number)
    used = cache.hold("a")
    assert used is not None
    used.lock.release()
    assert keys(cache) == ["a", "c", "b"]
    assert cache.make_room().removed == ("b",)
    assert cache.make_room().removed == ()


def test_pruning_leaves_what_is_used_or_kept(tmp_path: Path) -> None:
    cache = cache_at(tmp_path, limit_bytes=5)
    for number, key in enumerate("abc"):
        put(cache, key, used_at=1000.0 + number)
    held = cache.hold("a")
    assert held is not None
    room = cache.make_room(keep=("c",))
    assert (room.removed, room.busy_bytes, room.enough) == (("b",), 10, False)
    held.lock.release()


def test_reserved_room_counts_and_is_returned(tmp_path: Path) -> None:
    cache = cache_at(tmp_path, limit_bytes=100)
    put(cache, "a", 30, used_at=1000.0)
    with cache.building("b"):
        assert cache.reserve("b", 60).enough
        assert cache.make_room().used_bytes == 90
        with cache.building("c"):
            refused = cache.reserve("c", 50)
            assert (refused.removed, refused.busy_bytes, refused.enough) == (("a",), 60, False)
            assert not cache.partial("c").exists()
    with cache.building("c"):
        # Nobody fetches `b` any more.
        assert cache.reserve("c", 50).removed == ("b",)
        assert cache.reserve("c", 50).enough
        cache.commit("c", Size(50)).lock.release()
    assert cache.make_room().used_bytes == 50
    assert not (tmp_path / "c" / "reserved").exists()


def test_the_disk_keeps_its_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Usage:
        total: int
        free: int

    mib = 1 << 20
    monkeypatch.setattr("muster.host.cache.shutil.disk_usage", lambda _: Usage(10_000 * mib, 500 * mib))
    assert cache_at(tmp_path / "any", limit_bytes=10_000 * mib).reserve("a", 600 * mib).enough
    cache = cache_at(tmp_path / "careful", limit_bytes=10_000 * mib, keep_free_bytes=1 << 40)
    with cache.building("a"):
        assert not cache.reserve("a", 400 * mib).enough
        # At most a fiftieth of the disk is left to others.
        assert cache.reserve("a", 300 * mib).enough
        assert 0 <= cache.free_bytes() < mib
        assert not cache.reserve("b", 10 * mib).enough
        assert cache.reserve("a", 300 * mib).enough


def test_what_a_death_left_is_swept(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    put(cache, "whole")
    (tmp_path / "half").mkdir()
    (tmp_path / "under-way").mkdir()
    (tmp_path / ".gone" / "old").mkdir()
    with cache.building("under-way"):
        assert cache.sweep() == ["half"]
    assert keys(cache) == ["whole"]
    assert list((tmp_path / ".gone").iterdir()) == []
    assert cache.sweep() == ["under-way"]


def test_a_download_that_was_cut_off_counts_until_it_goes(tmp_path: Path) -> None:
    cache = cache_at(tmp_path, limit_bytes=50_000)
    with cache.building("a"):
        cache.partial("a").mkdir()
        (cache.partial("a") / "data").write_bytes(bytes(100_000))
    assert cache.make_room(keep=("a",)).removed == ()
    assert cache.make_room().removed == ("a",)
    assert not cache.partial("a").exists()
