"""One process of the host at a time brings an image."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from muster.agent.prepare.environment import Abandoned
from muster.environments.images.kept import images_dir


@contextmanager
def locked(name: str, unwanted: threading.Event) -> Iterator[None]:
    """Held by the one process of the host that brings this image."""
    path = images_dir() / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if unwanted.wait(0.1):
                    raise Abandoned("nobody wants the image any more") from None
        yield
    finally:
        os.close(descriptor)
