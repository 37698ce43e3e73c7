"""Locks between processes, threads and users."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from muster.host.locks import FileLock, HeldLock


@pytest.fixture
def lock(tmp_path: Path) -> FileLock:
    return FileLock(tmp_path / "lock")


def held(found: HeldLock | None) -> HeldLock:
    assert found is not None
    return found


def test_only_one_holds_it_exclusively(lock: FileLock) -> None:
    with held(lock.try_acquire()):
        assert lock.try_acquire() is None
        assert lock.try_acquire(shared=True) is None
        assert not lock.is_free() and not lock.is_free(shared=True)
    assert lock.is_free()


def test_many_share_it(lock: FileLock) -> None:
    with held(lock.try_acquire(shared=True)), held(lock.try_acquire(shared=True)):
        assert lock.try_acquire() is None
        assert lock.is_free(shared=True) and not lock.is_free()


def test_one_that_was_never_taken_is_free_and_stays_unmade(lock: FileLock) -> None:
    assert lock.is_free()
    assert lock.used_at() == 0.0
    assert not lock.path.exists()


def test_what_cannot_be_looked_at_counts_as_held(tmp_path: Path) -> None:
    assert not FileLock(tmp_path).is_free()


def test_a_released_lock_is_released_once(lock: FileLock) -> None:
    first = lock.acquire()
    first.release()
    with lock.acquire() as second:
        first.release()
        assert not lock.is_free()
        assert second.descriptor >= 0


def test_those_who_wait_hear_it_and_get_it(lock: FileLock) -> None:
    first = lock.acquire()
    waits: list[str] = []

    def waiting() -> None:
        waits.append("waiting")
        first.release()

    with lock.acquire(waiting=waiting):
        assert not lock.is_free()
    with lock.acquire(waiting=waiting):
        pass
    assert waits == ["waiting"]


def test_a_thread_that_waits_gets_it_after_the_other(lock: FileLock) -> None:
    order: list[str] = []
    first = lock.acquire()
    ready = threading.Event()

    def wait() -> None:
        ready.set()
        with lock.acquire():
            order.append("second")

    thread = threading.Thread(target=wait)
    thread.start()
    assert ready.wait(10)
    order.append("first")
    first.release()
    thread.join(10)
    assert order == ["first", "second"]


def test_waiting_ends_when_the_time_is_up(lock: FileLock) -> None:
    with lock.acquire():
        assert lock.acquire_within(0.0, poll_s=0.001) is None
    with held(lock.acquire_within(0.0)):
        pass


def test_waiting_ends_when_the_pause_says_so(lock: FileLock) -> None:
    unwanted = threading.Event()
    unwanted.set()
    with lock.acquire():
        assert lock.acquire_within(60.0, pause=unwanted.wait) is None


def test_a_failing_pause_leaves_no_descriptor(lock: FileLock) -> None:
    def fail(_: float) -> bool:
        raise KeyboardInterrupt

    with lock.acquire():
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(KeyboardInterrupt):
            lock.acquire_within(60.0, pause=fail)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_child_keeps_what_it_inherits(lock: FileLock) -> None:
    mine = lock.acquire()
    child = subprocess.Popen(
        [sys.executable, "-Sc", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[mine.descriptor]
    )
    mine.release()
    assert not lock.is_free()
    child.communicate()
    assert lock.is_free()


def test_a_detached_lock_is_its_new_owners(lock: FileLock) -> None:
    mine = lock.acquire()
    descriptor = mine.detach()
    mine.release()
    assert not lock.is_free()
    os.close(descriptor)
    assert lock.is_free()


def test_use_is_noted_on_the_file(lock: FileLock) -> None:
    with lock.acquire(shared=True) as mine:
        os.utime(lock.path, (1, 1))
        assert lock.used_at() == 1
        mine.touch()
        assert lock.used_at() > 1


def test_a_lock_is_private_unless_it_is_for_all_users(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        FileLock(tmp_path / "own").acquire().release()
        FileLock(tmp_path / "all", all_users=True).acquire().release()
    finally:
        os.umask(old)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "all").stat().st_mode & 0o777 == 0o644


def test_a_lock_for_all_users_needs_no_right_to_write(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", all_users=True)
    lock.path.touch(0o444)
    with held(lock.try_acquire()):
        assert lock.try_acquire() is None


def test_a_link_that_another_user_put_there_counts_as_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.symlink_to("/etc/passwd")
    assert FileLock(path, all_users=True).try_acquire() is None


def test_a_file_system_without_locks_may_do(lock: FileLock, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="no locks"):
        lock.try_acquire()
    with held(FileLock(lock.path, required=False).try_acquire()):
        pass
