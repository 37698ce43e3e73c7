"""File locks: held by a process and by children that inherit its descriptor, and released with the last of them.

A lock file is never removed: that would let two processes hold the same name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR)


class HeldLock:
    """A lock that is held until it is released and every copy of its descriptor is closed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        """May be passed on to children: they then hold the lock too."""

    def touch(self) -> None:
        """Note the current use on the lock file."""
        os.utime(self.descriptor)

    def release(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def detach(self) -> int:
        """Give up the descriptor, which the caller must close."""
        descriptor, self.descriptor = self.descriptor, -1
        return descriptor

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class FileLock:
    """A lock file, shared or exclusive; each acquisition is independent, also between threads."""

    def __init__(self, path: Path, *, required: bool = True, all_users: bool = False) -> None:
        """`required=False`: go on without a lock where the file system has none. `all_users`: any user may take it."""
        self.path = path
        self._required = required
        self._all_users = all_users

    def acquire(self, *, shared: bool = False, waiting: Callable[[], None] | None = None) -> HeldLock:
        """Acquire it, however long that takes; `waiting` is called once when somebody else holds it."""
        descriptor = self._open()
        try:
            if waiting is None or not self._lock(descriptor, shared, block=False):
                if waiting is not None:
                    waiting()
                self._lock(descriptor, shared, block=True)
        except BaseException:
            os.close(descriptor)
            raise
        return HeldLock(descriptor)

    def try_acquire(self, *, shared: bool = False) -> HeldLock | None:
        """Acquire it, unless somebody else holds it."""
        return self.acquire_within(0.0, shared=shared, pause=lambda _: True)

    def acquire_within(
        self,
        timeout_s: float,
        *,
        shared: bool = False,
        poll_s: float = 0.02,
        pause: Callable[[float], bool | None] = time.sleep,
    ) -> HeldLock | None:
        """Acquire it, or None after the timeout; `pause(poll_s)` is called between tries and gives up if it is true."""
        try:
            descriptor = self._open()
        except OSError as error:
            # A lock file that only another user may open counts as locked.
            if self._all_users and error.errno in _NOT_OURS:
                return None
            raise
        deadline = time.monotonic() + timeout_s
        try:
            while not self._lock(descriptor, shared, block=False):
                if pause(poll_s) or time.monotonic() > deadline:
                    os.close(descriptor)
                    return None
        except BaseException:
            os.close(descriptor)
            raise
        return HeldLock(descriptor)

    def is_free(self, *, shared: bool = False) -> bool:
        """Whether it could be acquired now; False where that cannot be determined.

        Callers that only check should pass `shared` where that answers their question: two of them then do not take
        each other for the holder.
        """
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            return self._lock(descriptor, shared, block=False)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def used_at(self) -> float:
        """When a holder last noted its use; 0: never."""
        try:
            return self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _open(self) -> int:
        if self._all_users:
            return _open_for_all(self.path)
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _lock(self, descriptor: int, shared: bool, block: bool) -> bool:
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, how if block else how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            # Some network file systems have no locks.
            if self._required or error.errno not in _UNSUPPORTED:
                raise
        return True


def _open_for_all(path: Path) -> int:
    # In a sticky folder the kernel refuses O_CREAT on another user's file (fs.protected_regular).
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDONLY | flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o644)
    except FileExistsError:
        # Somebody else created it at this very moment.
        return os.open(path, os.O_RDONLY | flags)
    os.fchmod(descriptor, 0o644)
    return descriptor
