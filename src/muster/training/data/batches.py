"""Batches as NumPy arrays, for JAX and everything else that takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

import numpy as np

from muster.training.data.layouts.base import Sample
from muster.training.data.stream import Stream, as_it_is

T = TypeVar("T")
_PUT_EVERY_S = 0.1


def numpy_batches(
    stream: Stream,
    decode: Callable[[Sample], Any] | None = None,
    *,
    threads: int = 4,
    ahead: int = 2,
    collate: Callable[[Sequence[Any]], Any] | None = None,
) -> Iterator[Any]:
    """The rest of the stream's epoch; `decode` runs in threads, a few batches ahead of the loop.

    Without `decode` a batch is a list of samples; with it, what it returns is stacked, part by part, by `collate`.
    """
    join = collate or (stacked if decode is not None else list)
    plan = stream.plan()
    yield from stream.counted(_ahead(_decoded(plan.batches(0, as_it_is), decode, threads, join), ahead))


def _decoded(
    batches: Iterator[list[Sample]], decode: Callable[[Sample], Any] | None, threads: int, join: Callable[[Any], Any]
) -> Iterator[Any]:
    if decode is None or threads < 2:
        yield from (join([decode(sample) if decode else sample for sample in batch]) for batch in batches)
        return
    with ThreadPoolExecutor(threads, "decoding") as workers:
        for batch in batches:
            yield join(list(workers.map(decode, batch)))


def stacked(items: Sequence[Any]) -> Any:
    """Arrays and numbers of several samples as one array, part by part; texts and bytes as a list."""
    first = items[0]
    if isinstance(first, dict):
        return {name: stacked([item[name] for item in items]) for name in first}
    if isinstance(first, tuple):
        return tuple(stacked(part) for part in zip(*items, strict=True))
    if isinstance(first, bytes | str | list) or first is None:
        return list(items)
    return np.stack([np.asarray(item) for item in items])


def _ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items, a few of them prepared in advance by a thread."""
    queue: Queue[tuple[bool, Any]] = Queue(max(depth, 1))
    unwanted = Event()

    def put(item: tuple[bool, Any]) -> bool:
        while not unwanted.is_set():
            try:
                queue.put(item, timeout=_PUT_EVERY_S)
                return True
            except Full:
                continue
        return False

    def fill() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
            put((False, None))
        except BaseException as error:  # raised again in the thread that asks for the batch
            put((False, error))

    thread = Thread(target=fill, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            wanted, item = queue.get()
            if wanted:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        unwanted.set()
        thread.join()
        items.close()  # type: ignore[attr-defined]
