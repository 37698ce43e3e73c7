"""Requests wait here for the one thread that runs the model; with batching, several are run together."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from queue import Empty, SimpleQueue
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from muster.scoring.figures import Tally
from muster.scoring.serve.body import BadInput
from muster.scoring.serve.models import Model
from muster.scoring.serve.streaming import Stream, pieces_of

_TOGETHER_S = 0.002
"""How long an answer may wait for the next ones, to be handed over with them."""


class Outcome(NamedTuple):
    """The outcome of one request."""

    value: Any
    error: Optional[BaseException] = None
    took_s: float = 0.0


class Waiting:
    """One request that waits for the model, or is run."""

    __slots__ = ("abandoned", "arrived", "data", "done", "headers")

    def __init__(self, data: Any, headers: Mapping[str, str], done: "asyncio.Future[Outcome]") -> None:
        self.data = data
        self.headers = headers
        self.done = done
        self.arrived = time.monotonic()
        self.abandoned = False
        """The client is gone, or has its answer already: the model need not run it."""

    def give_up(self, outcome: Outcome) -> None:
        """Nobody waits for the model's answer any more."""
        self.abandoned = True
        if not self.done.done():
            self.done.set_result(outcome)


class Full(Exception):
    """More requests wait than are allowed."""


class Work:
    """The model's work since the last call of `take`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue_ms, self._run_ms = Tally(), Tally()
        self._batches: Dict[int, int] = {}
        self._busy_s = 0.0
        self._failed = 0

    def note(self, queue_s: Iterable[float], took_s: float, failed: int) -> None:
        """Count requests that were run together."""
        with self._lock:
            count = 0
            for waited_s in queue_s:
                self._queue_ms.add(waited_s * 1000)
                count += 1
            self._run_ms.add(took_s * 1000)
            self._batches[count] = self._batches.get(count, 0) + 1
            self._busy_s += took_s
            self._failed += failed

    def take(self) -> Dict[str, Any]:
        """The figures as they are sent to the supervisor."""
        with self._lock:
            taken = {
                "queue_ms": self._queue_ms.take(), "run_ms": self._run_ms.take(), "batches": self._batches,
                "busy_s": self._busy_s, "failed": self._failed,
            }  # fmt: skip
            self._batches, self._busy_s, self._failed = {}, 0.0, 0
        return taken


class Runner:
    """Runs the model in one thread, so that the listener stays free to accept and refuse requests."""

    def __init__(
        self,
        model: Model,
        loop: asyncio.AbstractEventLoop,
        max_batch: int,
        max_wait_s: float,
        most: int,
        patience_s: float = 60.0,
    ) -> None:
        self._model = model
        self._loop = loop
        self._max_batch = max_batch
        self._max_wait_s = max_wait_s
        self._most = most
        self._patience_s = patience_s
        self._queue: "SimpleQueue[Optional[Waiting]]" = SimpleQueue()
        """None ends the thread."""
        self.work = Work()
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def submit(self, data: Any, headers: Mapping[str, str]) -> Waiting:
        """Queue a request; raises Full."""
        if self._queue.qsize() >= self._most:
            raise Full
        waiting = Waiting(data, headers, self._loop.create_future())
        self._queue.put(waiting)
        return waiting

    @property
    def waiting(self) -> int:
        """The number of requests that wait for the model."""
        return self._queue.qsize()

    def close(self) -> None:
        """End the thread, once the model has finished its current requests."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            taken = self._take()
            if not taken:
                return
            began = time.monotonic()
            outcomes = self._batch(taken) if self._max_batch > 1 else self._each(taken)
            self._note(taken, outcomes, began)
            # One call for all of them: waking the event loop costs more than an answer.
            self._loop.call_soon_threadsafe(_deliver, outcomes)

    def _note(self, taken: List[Waiting], outcomes: List[Tuple[Waiting, Outcome]], began: float) -> None:
        if self._max_batch > 1:
            failed = sum(outcome.error is not None for _, outcome in outcomes)
            self.work.note((began - item.arrived for item in taken), time.monotonic() - began, failed)
            return
        at = began
        for item, outcome in outcomes:
            self.work.note((at - item.arrived,), outcome.took_s, int(outcome.error is not None))
            at += outcome.took_s

    def _take(self) -> List[Waiting]:
        """The next requests: all that wait, or as many as fit in a batch, whose first one waits a little for others."""
        # Without batching a few at once, whose answers are handed over together if the model is fast.
        most = self._max_batch if self._max_batch > 1 else 8
        while True:
            item = self._queue.get()
            if item is None:
                return []
            deadline = item.arrived + self._max_wait_s if self._max_batch > 1 else 0.0
            taken = [item]
            while len(taken) < most:
                left_s = deadline - time.monotonic()
                try:
                    item = self._queue.get(left_s > 0, left_s)
                except Empty:
                    break
                if item is None:
                    self._queue.put(None)
                    break
                taken.append(item)
            taken = [item for item in taken if not item.abandoned]
            if taken:
                return taken

    def _each(self, taken: List[Waiting]) -> List[Tuple[Waiting, Outcome]]:
        """Run one after the other. A stream starts before it is complete, and keeps the model until its end."""
        outcomes: List[Tuple[Waiting, Outcome]] = []
        began = time.monotonic()
        for item in taken:
            if item.abandoned:
                # Its client went away, or its time was over, while those before it were run.
                continue
            outcome = self._one(item, item.data)
            outcomes.append((item, outcome))
            if isinstance(outcome.value, Stream) or time.monotonic() - began > _TOGETHER_S:
                self._loop.call_soon_threadsafe(_deliver, list(outcomes))
                began = time.monotonic()
            if isinstance(outcome.value, Stream):
                outcome.value.pump()
        return outcomes

    def _one(self, item: Waiting, data: Any) -> Outcome:
        began = time.perf_counter()
        try:
            value = self._model.call(data, item.headers)
            pieces = pieces_of(value)
            if pieces is not None:
                value = Stream(self._loop, pieces, value, self._patience_s)
        except BaseException as error:
            # Whatever a script raises is its request's error: without this thread no request would be answered again.
            return _failed(error, began)
        return Outcome(value, None, time.perf_counter() - began)

    def _batch(self, taken: List[Waiting]) -> List[Tuple[Waiting, Outcome]]:
        """Run all together; if that fails, each alone, so that a bad one fails alone."""
        began = time.perf_counter()
        try:
            results = list(self._model.run([item.data for item in taken]))
            if len(results) != len(taken):
                raise ValueError("run() returned {} results for {} requests".format(len(results), len(taken)))
        except BaseException as error:
            if len(taken) == 1:
                return [(taken[0], _failed(error, began))]
            return [pair for item in taken for pair in self._batch([item])]
        took_s = time.perf_counter() - began
        return [
            (item, Outcome(None, result, took_s) if isinstance(result, Exception) else Outcome(result, None, took_s))
            for item, result in zip(taken, results)  # noqa: B905
        ]


def _failed(error: BaseException, began: float) -> Outcome:
    """A request that failed. The log shows where in the script, unless the client sent a bad input."""
    if not isinstance(error, BadInput):
        traceback.print_exception(type(error), error, error.__traceback__)
    return Outcome(None, error, time.perf_counter() - began)


def _deliver(outcomes: List[Tuple[Waiting, Outcome]]) -> None:
    for item, outcome in outcomes:
        if not item.done.done():
            item.done.set_result(outcome)
        elif item.abandoned and isinstance(outcome.value, Stream):
            outcome.value.close()
