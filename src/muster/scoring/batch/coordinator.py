"""Hands out mini-batches and collects their results, in rank 0: the only place that knows what is done."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional

from muster.scoring import frames
from muster.scoring.batch.spool import Spool
from muster.scoring.batch.work import PER_FILE, Batch, Settings

_AHEAD = 4
"""Mini-batches per rank that may be under way beyond the first unfinished one."""
_REPORT_S = 1.0


class Result(NamedTuple):
    """The outcome of one mini-batch."""

    rows: List[str]
    failed: int
    lost: bool
    """All items failed, after every try."""


class Coordinator:
    """The state of one batch scoring, and a thread for each rank's connection."""

    def __init__(self, settings: Settings, spool: Spool, work: Iterator[Batch], num_ranks: int, run: Any) -> None:
        self._settings = settings
        self._spool = spool
        self._num_ranks = num_ranks
        self._run = run
        self._changed = threading.Condition()
        self._known: List[Batch] = []
        """All mini-batches found so far."""
        self._complete = False
        self._next = spool.done
        self._again: Deque[int] = deque()
        self._under_way: Dict[int, int] = {}
        """Number of a mini-batch to the rank that works on it."""
        self._results: Dict[int, Result] = {}
        """Results that wait for an earlier one."""
        self._told = 0
        self.problem = ""
        threading.Thread(target=self._find, args=(work,), daemon=True).start()

    def serve(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def finish(self, output: Path) -> None:
        """Wait until everything is done, write the results, and let all ranks go."""
        try:
            self._finish(output)
        except Exception as error:
            # A full disk, for instance: ranks that wait for the end must hear of it.
            self._fail("the results cannot be written: {}".format(error))
        with self._changed:
            self._written = True
            self._changed.notify_all()
            # Muster notices a rank that died, and ends the gang.
            self._changed.wait_for(lambda: self._told >= self._num_ranks)

    def _finish(self, output: Path) -> None:
        began, first = time.monotonic(), self._spool.items
        with self._changed:
            while not self._is_over():
                self._changed.wait(_REPORT_S)
                self._report()
            self._report()
        if not self.problem:
            self._spool.write(output, self._settings.output_action, self._settings.output_file)
            self._say(time.monotonic() - began, first)
        elif self._spool.done:
            self._spool.publish(self._run, force=True)

    def _fail(self, problem: str) -> None:
        """Give up the whole scoring; the first reason counts."""
        with self._changed:
            self.problem = self.problem or problem
            self._changed.notify_all()

    _written = False

    def _is_over(self) -> bool:
        return bool(self.problem) or (self._complete and self._spool.done == len(self._known))

    def _report(self) -> None:
        """Report the progress, for progress bars and the time left; and publish a checkpoint where one is due."""
        total = len(self._known) if self._complete else None
        self._run.progress(self._spool.done, total, "mini-batches")
        self._spool.publish(self._run)

    def _say(self, took_s: float, first: int) -> None:
        items, failed = self._spool.items, self._spool.failed_items
        rate = (items - first) / max(took_s, 1e-9)
        scored = "{:,} of {:,}".format(items - failed, items) if failed else "{:,}".format(items)
        print(
            "scored {} items in {:,} mini-batch{}, {:,} failed, {:,.1f} items/s".format(
                scored, self._spool.done, "" if self._spool.done == 1 else "es", failed, rate
            )
        )
        self._run.log("items", items)
        self._run.log("failed_items", failed)
        self._run.log("items_per_s", rate)

    def _find(self, work: Iterator[Batch]) -> None:
        problem = ""
        try:
            for batch in work:
                with self._changed:
                    self._known.append(batch)
        except Exception as error:
            problem = "the input cannot be read: {}".format(error)
        with self._changed:
            self._complete = True
            if problem:
                self._fail(problem)
            self._changed.notify_all()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        rank = -1
        try:
            rank = frames.number(frames.receive(connection)[0])
            while True:
                message = frames.receive(connection)
                if message[0] == "next":
                    answer = self._give(rank)
                    frames.send(connection, answer)
                    if answer[0] == "done":
                        break
                else:
                    self._take(message)
        except (OSError, ValueError, IndexError):
            self._lose(rank)
            return
        with self._changed:
            self._told += 1
            self._changed.notify_all()

    def _give(self, rank: int) -> frames.Message:
        """What a rank should do now."""
        with self._changed:
            if self._is_over():
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._written)
                return ["done", self.problem]
            if self._again:
                number = self._again.popleft()
            elif self._next < len(self._known) and self._next < self._spool.done + _AHEAD * self._num_ranks:
                number = self._next
                self._next += 1
            else:
                return ["wait"]
            self._under_way[number] = rank
            return ["batch", *self._known[number].message()]

    def _take(self, message: frames.Message) -> None:
        """Take a rank's result: kept once, in order."""
        kind, number = frames.text(message[0]), frames.number(message[1])
        with self._changed:
            if self._under_way.pop(number, None) is None:
                return
            batch = self._known[number]
            if kind == "scored":
                self._results[number] = self._result(batch, frames.texts(message[2]))
            else:
                print(
                    "muster: mini-batch {} ({}) failed for good: {}".format(number, _named(batch), message[2]),
                    file=sys.stderr,
                )
                self._results[number] = Result([], batch.items, True)
            try:
                self._keep_in_order()
            except OSError as error:
                self._fail("the results cannot be kept: {}".format(error))
            self._check_thresholds()
            self._changed.notify_all()

    def _keep_in_order(self) -> None:
        while self._spool.done in self._results:
            first = self._results.pop(self._spool.done)
            self._spool.append(self._known[self._spool.done], first.rows, first.failed, first.lost)

    def _result(self, batch: Batch, rows: List[str]) -> Result:
        if self._settings.output_action == PER_FILE and len(batch.names) > 1 and len(rows) != batch.items:
            said = "run() returned {} results for {} files, and per_file needs one for each".format(
                len(rows), batch.items
            )
            print("muster: mini-batch {}: {}".format(batch.number, said), file=sys.stderr)
            return Result([], batch.items, True)
        return Result(rows, max(0, batch.items - len(rows)), False)

    def _check_thresholds(self) -> None:
        waiting = self._results.values()
        items = self._spool.failed_items + sum(item.failed for item in waiting)
        lost = self._spool.failed_batches + sum(1 for item in waiting if item.lost)
        settings = self._settings
        if 0 <= settings.error_threshold < items:
            self.problem = "{:,} items failed; error_threshold allows {:,}".format(items, settings.error_threshold)
        elif 0 <= settings.mini_batch_error_threshold < lost:
            self.problem = "{:,} mini-batches failed; mini_batch_error_threshold allows {:,}".format(
                lost, settings.mini_batch_error_threshold
            )

    def _lose(self, rank: int) -> None:
        """Give the work of a rank that went away to others."""
        with self._changed:
            mine = sorted(number for number, holder in self._under_way.items() if holder == rank)
            for number in mine:
                del self._under_way[number]
            self._again.extend(mine)
            self._changed.notify_all()


def _named(batch: Batch) -> str:
    first: Optional[str] = batch.names[0] if batch.names else None
    more = len(batch.names) - 1
    return "{}{}".format(first, " and {} more".format(more) if more > 0 else "")
