"""How long a rank waits for data, for every `DataLoader` of PyTorch and every `tf.data` iterator of a Python loop.

The time that the main thread spends in an iterator's `__next__` is waiting; the rest, from the first call on, is work
with the batches. Both are written to the rank's metrics every few seconds and at the end. The cost is two readings of
the clock per batch.
"""

import os
import sys
from _frozen_importlib_external import PathFinder
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable

_ITERATORS = {
    "torch.utils.data.dataloader": "_BaseDataLoaderIter",
    "tensorflow.python.data.ops.iterator_ops": "OwnedIterator",
}
_EVERY_S = 10.0
_LEAST_S = 1.0
"""Shorter totals are not reported."""
_LINE = '{"kind": "metric", "type": "scalar", "name": "muster/loader_%s_s", "value": %.3f, "step": null, "at": %.3f}\n'


class _Wait:
    """The time waited in this process so far."""

    def __init__(self) -> None:
        self.inside = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._began = self._ended = self._told = 0.0
        self._waited = 0.0

    def add(self, asked: float, ready: float) -> None:
        if self._pid != os.getpid():
            # After a fork the parent's waits do not count here.
            self._begin()
        if not self._began:
            self._began = self._told = asked
        self._waited += ready - asked
        self._ended = ready
        if ready - self._told >= _EVERY_S:
            self._told = ready
            self.tell()

    def tell(self) -> None:
        whole = self._ended - self._began
        if self._pid != os.getpid() or whole < _LEAST_S:
            return
        from time import time

        now = time()
        lines = _LINE % ("wait", self._waited, now) + _LINE % ("rest", whole - self._waited, now)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            file = os.open(os.environ["MUSTER_EVENTS_FILE"], flags, 0o644)
            try:
                os.write(file, lines.encode())
            finally:
                os.close(file)
        except (OSError, KeyError):
            # This must never stop a script.
            pass


class _Finder:
    """Wraps the iterators when one of these modules is imported."""

    def __init__(self, main: int) -> None:
        self._main = main
        self._wait = _Wait()
        self._watched = False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in _ITERATORS:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: "ModuleType") -> None:
                execute(module)
                self._watch(getattr(module, _ITERATORS[name], None))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _watch(self, iterator: "Any") -> None:
        take = getattr(iterator, "__next__", None)
        if take is None:
            return
        iterator.__next__ = _timed(take, self._wait, self._main)
        if not self._watched:
            import atexit

            self._watched = True
            atexit.register(self._wait.tell)


def _timed(take: "Callable[[Any], Any]", wait: _Wait, main: int) -> "Callable[[Any], Any]":
    from time import perf_counter as clock

    def __next__(self: "Any") -> "Any":
        # Prefetching in another thread is no wait; an iterator may call another one.
        if wait.inside or get_ident() != main:
            return take(self)
        wait.inside = True
        asked = clock()
        try:
            return take(self)
        finally:
            wait.inside = False
            wait.add(asked, clock())

    return __next__


def install() -> None:
    """Watch for these imports; it costs every other import one lookup."""
    if os.environ.get("MUSTER_EVENTS_FILE"):
        sys.meta_path.insert(0, _Finder(get_ident()))
