"""Opens a tunnel to a run that may be about to start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from muster.cli.console import say
from muster.errors import UserError
from muster.wire.tunnels import NOT_STARTED_YET

T = TypeVar("T")
_PATIENCE_S = 60.0
_PAUSE_S = 0.3


def once_started(enter: Callable[[], T]) -> T:
    """Enter a run; waits up to a minute for one that has not started yet."""
    deadline, notified = time.monotonic() + _PATIENCE_S, False
    while True:
        try:
            return enter()
        except UserError as error:
            if error.code != NOT_STARTED_YET or time.monotonic() > deadline:
                raise
            if not notified:
                say(f"{error.message}; waiting for it")
                notified = True
        time.sleep(_PAUSE_S)
