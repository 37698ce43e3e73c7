"""Reliable samples per second: without the warm-up, and with waiting for data separate from computing."""

from __future__ import annotations

import statistics
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar

if TYPE_CHECKING:
    import torch

Batch = TypeVar("Batch")


class Ranks(Protocol):
    """The ranks of the training: a `World`, or the equivalent of another framework."""

    @property
    def size(self) -> int: ...
    def gather(self, value: Any, /) -> list[Any]: ...


@dataclass(frozen=True)
class Rates:
    """This rank's rates since the last call, and its seconds since the start of the training."""

    samples_per_s: float
    step_s: float
    data_s: float
    compute_s: float


class Total(TypedDict):
    """The figures of the whole job; lists have an entry for each rank."""

    samples_per_s: float
    samples_per_s_per_device: float
    samples_per_s_of_ranks: list[float]
    world_size: int
    device: str
    counted_steps: int
    warmup_steps: int
    median_step_s: float
    seconds: float
    data_s: list[float]
    compute_s: list[float]


@dataclass(frozen=True)
class _Share:
    """One rank's part of the figures."""

    samples: int
    seconds: float
    data_s: float
    median_step_s: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0


class _Step(NamedTuple):
    """The moments of a step, as its clock marks them."""

    before: Any
    asked: Any
    ready: Any
    done: Any
    samples: int
    counted: bool
    pauses: list[tuple[Any, Any]]


class Throughput:
    """Times the steps of one rank.

    On a GPU the moments are events in its stream, read when they have passed: nothing waits for the GPU. A step lasts
    from the end of the one before to its own end; the part between asking for its data and having it is data time.
    Without a PyTorch device the host's clock is used, and `step` must be called when the step is done.
    """

    def __init__(self, device: torch.device | None = None, *, warmup_steps: int = 5) -> None:
        if isinstance(device, str):
            raise TypeError(f"device is the text {device!r}; give the device itself, such as world.device")
        on_gpu = device is not None and device.type == "cuda"
        self._clock: _HostClock | _CudaClock = _CudaClock(device) if on_gpu else _HostClock()
        self._warmup_steps = warmup_steps
        self._steps = 0
        self._before = self._asked = self._ready = self._clock.mark()
        self._pauses: list[tuple[Any, Any]] = []
        self._under_way: deque[_Step] = deque()
        self._step_s = array("d")
        self._samples = 0
        self._seconds = 0.0
        self._data_s = 0.0
        self._since = (0, 0.0, 0)
        self._seen = (0, 0.0, 0)
        self.data_s = 0.0
        """Seconds waited for data, the warm-up included."""
        self.compute_s = 0.0
        """Seconds of the rest of the steps."""

    def wait_for(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; the wait for each one is measured."""
        self._asked = self._clock.mark()
        for batch in batches:
            self._ready = self._clock.mark()
            yield batch
            self._asked = self._clock.mark()

    def step(self, samples: int) -> None:
        """Record a step over this many samples of this rank; it need not be finished on the device."""
        done = self._clock.mark()
        counted = self._steps >= self._warmup_steps
        self._under_way.append(_Step(self._before, self._asked, self._ready, done, samples, counted, self._pauses))
        self._before, self._pauses = done, []
        self._steps += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time spent inside, such as a validation between two steps."""
        began = self._clock.mark()
        yield
        self._pauses.append((began, self._clock.mark()))

    def rates(self) -> Rates:
        """The rate of the steps that ended since the last call."""
        self._collect()
        samples, seconds, steps = (now - before for now, before in zip(self._seen, self._since, strict=True))
        self._since = self._seen
        rate = samples / seconds if seconds else 0.0
        return Rates(rate, seconds / steps if steps else 0.0, self.data_s, self.compute_s)

    def total(self, world: Ranks) -> Total:
        """The figures of the whole job; every rank must call it."""
        self._clock.finish()
        self._collect()
        median = statistics.median(self._step_s) if self._step_s else 0.0
        ranks = world.gather(_Share(self._samples, self._seconds, self._data_s, median))
        longest = max(rank.seconds for rank in ranks)
        total = sum(rank.samples for rank in ranks) / longest if longest else 0.0
        return {
            "samples_per_s": total,
            "samples_per_s_per_device": total / world.size,
            "samples_per_s_of_ranks": [rank.samples_per_s for rank in ranks],
            "world_size": world.size,
            "device": self._clock.device_name,
            "counted_steps": len(self._step_s),
            "warmup_steps": self._steps - len(self._step_s),
            "median_step_s": max(rank.median_step_s for rank in ranks),
            "seconds": longest,
            "data_s": [rank.data_s for rank in ranks],
            "compute_s": [rank.seconds - rank.data_s for rank in ranks],
        }

    def _collect(self) -> None:
        seconds = self._clock.seconds
        while self._under_way and self._clock.has_passed(self._under_way[0].done):
            step = self._under_way.popleft()
            step_s = seconds(step.before, step.done) - sum(seconds(*pause) for pause in step.pauses)
            # Time before asking, such as for saving, is not counted as data time.
            data_s = min(step_s, max(0.0, seconds(step.asked, step.ready)))
            self.data_s += data_s
            self.compute_s += step_s - data_s
            seen_samples, seen_s, seen_steps = self._seen
            self._seen = (seen_samples + step.samples, seen_s + step_s, seen_steps + 1)
            if step.counted:
                self._samples += step.samples
                self._seconds += step_s
                self._data_s += data_s
                self._step_s.append(step_s)


class _HostClock:
    device_name = "cpu"

    def mark(self) -> float:
        return time.perf_counter()

    def has_passed(self, moment: float) -> bool:
        return True

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def finish(self) -> None:
        return


class _CudaClock:
    def __init__(self, device: torch.device | None) -> None:
        import torch

        self._cuda, self.device_name = torch.cuda, torch.cuda.get_device_name(device)

    def mark(self) -> torch.cuda.Event:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def has_passed(self, moment: torch.cuda.Event) -> bool:
        return bool(moment.query())

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(begin.elapsed_time(end)) / 1e3

    def finish(self) -> None:
        self._cuda.synchronize()
