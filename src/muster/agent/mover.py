"""Transfers: a child process does the heavy part, and a worker thread of the agent listens to it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from muster.agent.run.variables import NODE_MARK
from muster.errors import MusterError
from muster.host.children import Abandoned, Child, ChildEnded
from muster.storage.connectors.credentials import FreshTokens
from muster.storage.staging.messages import BlocksHeard, Done, Failure, ProgressReport, Report, Request
from muster.wire.codec import from_json, to_json
from muster.wire.node.peers import BlocksAnswer, BlocksReport

log = logging.getLogger(__name__)

_END_S = 2.0
_MOUNT_END_S = 10.0
_TRIES = 2
_SILENT_S = 60.0
_FIRST_WORD_S = 300.0
"""A process may take long to start where many do."""
_WINDOW_S = 10.0
"""The time over which a rate is measured."""

Renew = Callable[[tuple[str, ...]], FreshTokens]
OnProgress = Callable[[ProgressReport], None]
Exchange = Callable[[BlocksReport], BlocksAnswer | None]
"""Reports to the server how far a shared input is; see `agent.peers`."""


class Failed(Exception):
    """A transfer that failed, with one of the verdict's codes. If it is final, trying again does not help."""

    def __init__(self, code: str, message: str, final: bool = False, next: str = "") -> None:
        super().__init__(message)
        self.next = next
        self.code = code
        self.message = message
        self.final = final


@dataclass(frozen=True)
class Mover:
    """Starts movers for one attempt; called in worker threads."""

    mark: str
    unwanted: threading.Event

    @contextmanager
    def run(
        self, request: Request, on_progress: OnProgress, renew: Renew, exchange: Exchange = lambda report: None
    ) -> Iterator[Done]:
        """The transfer's result; what it holds in the cache stays held until the block ends. Raises Failed."""
        child, done = self._started(request, on_progress, renew, exchange)
        try:
            yield done
        finally:
            child.end(_END_S)

    def serve(
        self,
        request: Request,
        renew: Renew,
        exchange: Exchange = lambda report: None,
        on_report: Callable[[Report], None] = lambda report: None,
    ) -> Serving:
        """A lasting transfer, such as a mount: its process stays until it is closed."""

        def tell(progress: ProgressReport) -> None:
            on_report(Report(progress=progress))

        child, done = self._started(request, tell, renew, exchange)
        serving = Serving(child, done, renew, exchange, on_report)
        threading.Thread(target=serving.listen, name="mount", daemon=True).start()
        return serving

    def _started(
        self, request: Request, on_progress: OnProgress, renew: Renew, exchange: Exchange
    ) -> tuple[Child, Done]:
        """A mover and its result; one that was killed is started once more, and continues from there."""
        for left in reversed(range(_TRIES)):
            environment = {**os.environ, NODE_MARK: self.mark}
            child = Child([sys.executable, "-m", "muster.storage.staging"], environment=environment)
            try:
                return child, self._listen(child, request, on_progress, renew, exchange)
            except ChildEnded as error:
                child.end(_END_S)
                if not left:
                    raise Failed(
                        "platform", "the process that moved the data was killed or stood still, twice"
                    ) from error
            except BaseException:
                child.end(_END_S)
                raise
        raise AssertionError("unreachable")

    def _listen(
        self, child: Child, request: Request, on_progress: OnProgress, renew: Renew, exchange: Exchange
    ) -> Done:
        last = Repeated(on_progress)
        child.send(to_json(request))
        while True:
            last.listens()
            report = from_json(Report, child.receive(self.unwanted, last.repeat))
            last.is_up = True
            if report.done is not None:
                return report.done
            if report.failed is not None:
                failed = report.failed
                raise Failed(failed.code, failed.message, failed.final, failed.next)
            if report.need is not None:
                child.send(to_json(renew(report.need)))
            elif report.blocks is not None:
                child.send(to_json(BlocksHeard(exchange(report.blocks))))
            elif report.progress is not None:
                last.tell(report.progress)


class Stalled(ChildEnded):
    """A mover that does not even report that nothing moves."""


class Repeated:
    """Progress that is repeated while the mover is silent: one that hangs must not seem to go on at an old rate.

    One that stays silent is given up, since a mover reports even while nothing moves, whatever it waits for.
    """

    def __init__(self, on_progress: OnProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_progress = on_progress
        self._clock = clock
        self._last: ProgressReport | None = None
        self._told_at = self._listens_since = 0.0
        self.is_up = False
        """It has reported something."""

    def listens(self) -> None:
        """Start to wait for its next report."""
        self._listens_since = self._clock()

    def tell(self, progress: ProgressReport) -> None:
        self._last, self._told_at = progress, self._clock()
        self._on_progress(progress)

    def repeat(self) -> None:
        """Called while it is silent; raises Stalled after too long a silence."""
        patience_s = _SILENT_S if self.is_up else _FIRST_WORD_S
        if self._clock() - self._listens_since >= patience_s:
            raise Stalled(f"the process that moves data has said nothing for {patience_s:g} s")
        if self._last is not None and self._clock() - self._told_at >= _WINDOW_S:
            self.tell(self._last)


@dataclass
class Serving:
    """A mover that stays, as for a mount."""

    child: Child
    done: Done
    renew: Renew
    exchange: Exchange = lambda report: None
    on_report: Callable[[Report], None] = lambda report: None
    """Receives the other reports: its progress, that everything has come, or why not."""

    _closed: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        """Answer whatever it asks, until it ends."""
        try:
            self._answer()
        except Abandoned:
            return
        except (OSError, ValueError, MusterError, ChildEnded, Failed) as error:
            if self._closed.is_set():
                return
            why = "the process that moved the data was killed" if type(error) is ChildEnded else str(error)
            log.warning("what a job reads is no longer served: %s", error)
            # A job that waits for more must learn of its end, or it would wait for ever.
            self.on_report(Report(failed=Failure("platform", why, True)))
            self.child.end()

    def _answer(self) -> None:
        last = Repeated(lambda progress: self.on_report(Report(progress=progress)))
        last.is_up = True
        while True:
            last.listens()
            report = from_json(Report, self.child.receive(self._closed, last.repeat))
            if report.need is not None:
                self.child.send(to_json(self.renew(report.need)))
            elif report.blocks is not None:
                self.child.send(to_json(BlocksHeard(self.exchange(report.blocks))))
            elif report.progress is not None:
                last.tell(report.progress)
            elif report.failed is not None or report.arrived:
                self.on_report(report)

    def close(self) -> None:
        self._closed.set()
        self.child.end(_MOUNT_END_S)


class Rate:
    """Progress in words: how much, how fast in the last seconds, the time left; or for how long nothing came."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._shown = ""
        self._seen: deque[tuple[float, int, int]] = deque()
        """When, how much had come, and how much of it from other nodes."""
        self._moved_at = 0.0

    def text(self, progress: ProgressReport) -> str:
        now, done, total = self._clock(), progress.done_bytes, progress.total_bytes
        moved = done - progress.resumed_bytes
        what = self._what.replace("fetching", progress.phase) if progress.phase else self._what
        if what != self._shown:
            self._shown, self._moved_at = what, now
            self._seen.clear()
        if self._seen and moved != self._seen[-1][1]:
            self._moved_at = now
        self._seen.append((now, moved, progress.peer_bytes))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()
        text = f"{what}: {shown(done)} of {shown(total)}"
        if progress.total_files > 1:
            text += f", {progress.done_files:,} of {progress.total_files:,} files"
        return text + (self._pace(now, total - done, progress.nodes) if done < total else "")

    def _pace(self, now: float, left: int, nodes: int) -> str:
        if now - self._moved_at >= _WINDOW_S:
            return f", nothing for {_duration(now - self._moved_at)}"
        (then, before, peers_before), (_, moved, by_peers) = self._seen[0], self._seen[-1]
        seconds = now - then
        rate = (moved - before) / seconds if seconds > 0 else 0.0
        if rate <= 0:
            return ""
        source = _by_source(rate, (by_peers - peers_before) / seconds, nodes)
        return f", {shown(rate)}/s{source}, about {_duration(left / rate)} left"


def _by_source(rate: float, by_peers: float, nodes: int) -> str:
    """How a rate is made up, where other nodes have a part in it."""
    if by_peers <= 0:
        return ""
    others = f"{nodes} other node{'s' if nodes > 1 else ''}" if nodes else "other nodes"
    return f" ({shown(by_peers)}/s from {others}, {shown(max(0.0, rate - by_peers))}/s from the source)"


def shown(size: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
