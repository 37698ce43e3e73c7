"""Following a run to its end, with Ctrl-C as a wish and not as an accident."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from muster.cli.display import Display
from muster.cli.merge import Merger
from muster.cli.state import RunState
from muster.client.sse import StreamEvent


class Streaming(Protocol):
    """What following needs of the client."""

    def run(self, ref: str) -> dict[str, Any]: ...
    def stream(
        self, ref: str, cursor: str | None = None, follow: bool = True, logs: bool = True, metrics: bool = True
    ) -> Iterator[StreamEvent]: ...
    def cancel(self, ref: str, force: bool = False) -> Any: ...


class Interrupts:
    """Counts Ctrl-C; breaks off only a wait, so that nothing half done is left."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting = False

    def __enter__(self) -> Self:
        # SIGTERM ends the client alone, as a closed terminal does, but leaves the screen in order.
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
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class Abandoned(Exception):
    """The user no longer wants to wait."""


class Screen:
    """Puts the events of a stream on a display."""

    def __init__(
        self,
        display: Display,
        state: RunState,
        merger: Merger,
        wanted: Callable[[Mapping[str, Any]], bool] = lambda data: True,
    ) -> None:
        self.display = display
        self.state = state
        self.cursor: str | None = None
        self._merger = merger
        self._wanted = wanted
        self._attempt: int | None = None

    def show(self, event: StreamEvent) -> None:
        if event.event == "log":
            self._show_log(event.data)
        else:
            self.state.apply(event.event, event.data, time.time())
            if event.event == "note":
                self.display.note(event.data["text"], event.data.get("level", ""))
            elif event.event in ("state", "end"):
                self.display.changed(self.state)
        self.cursor = event.cursor

    def finish(self) -> None:
        self.display.lines(self._merger.finish())

    def _show_log(self, data: Mapping[str, Any]) -> None:
        if not self._wanted(data):
            return
        if data["attempt"] != self._attempt:
            self.finish()
            if self._attempt is not None:
                self.display.note(f"attempt {data['attempt']}")
            self._attempt = data["attempt"]
        self.display.lines(self._merger.feed(data["stream"], data["bytes"]))


class Follower:
    """Follows a run to its end; a first Ctrl-C cancels the run, a second one kills it."""

    def __init__(self, client: Streaming, view: Mapping[str, Any], screen: Screen, interrupts: Interrupts) -> None:
        self._client = client
        self._run: str = view["id"]
        self._name: str = view.get("name") or view["id"]
        self._screen = screen
        self._interrupts = interrupts
        self._answered = 0

    def until_end(self, logs: bool = True) -> str:
        """Returns the state in which the run ended."""
        state = self._screen.state
        while not state.ended:
            try:
                self._follow(logs)
            except KeyboardInterrupt:
                pass
            self._answer()
        self._screen.finish()
        return state.status

    def _follow(self, logs: bool) -> None:
        events = self._client.stream(self._run, cursor=self._screen.cursor, logs=logs)
        while self._interrupts.count == self._answered:
            with self._interrupts.waiting():
                event = next(events, None)
            if event is None:
                self._screen.state.status = self._client.run(self._run)["status"]
                return
            self._screen.show(event)
            if event.event == "end":
                return

    def _answer(self) -> None:
        """Turn new Ctrl-Cs into a cancel, then a kill, then into not waiting any more."""
        while self._interrupts.count > self._answered and not self._screen.state.ended:
            self._answered += 1
            if self._answered > 2:
                raise Abandoned
            force = self._answered == 2
            self._screen.display.note(
                f"Killing {self._name} …"
                if force
                else f"Cancelling {self._name}; its ranks may tidy up. Ctrl-C again kills it at once."
            )
            try:
                with self._interrupts.waiting():
                    self._client.cancel(self._run, force=force)
            except KeyboardInterrupt:
                continue
