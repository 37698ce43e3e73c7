"""Ctrl-C during submission and following. Imported before anything is submitted, so it imports little."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Protocol, Self

from muster.cli.console import say
from muster.wire.runs import RunView


class Interrupts:
    """Counts Ctrl-C; interrupts only waits, so that nothing is left half done. After `held` of them it always does."""

    def __init__(self, held: int | None = None) -> None:
        self.count = 0
        self._held = held
        self._waiting = False

    def __enter__(self) -> Self:
        # SIGTERM ends only the client, as a closed terminal does, but restores the screen.
        self._before = {
            signal.SIGINT: signal.signal(signal.SIGINT, self._pressed),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _leave),
        }
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def _pressed(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._waiting or (self._held is not None and self.count > self._held):
            self._waiting = False
            raise KeyboardInterrupt


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class Cancelling(Protocol):
    def cancel(self, ref: str, force: bool = False) -> object: ...


def submitted(client: Cancelling, ask: Callable[[], RunView], then: Callable[[RunView], object]) -> RunView:
    """Submit by `ask`, then call `then` with the run; Ctrl-C meanwhile cancels it."""
    view: RunView | None = None
    try:
        with Interrupts(held=1) as interrupts:
            view = ask()
            if not interrupts.count:
                then(view)
            if not interrupts.count:
                return view
    except KeyboardInterrupt:
        if view is None:
            say("\nnot waiting for the server's answer; `muster ps` shows whether the run was made")
            raise
    client.cancel(view.id)
    say(f"\n{view.id} is being cancelled")
    raise KeyboardInterrupt
