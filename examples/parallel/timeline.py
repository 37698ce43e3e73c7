"""What each rank did when: computing, exchanging, waiting."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from muster.training import World

# Names of events: our own, with stage and micro-batch in a pipeline, and those of the profiler.
KINDS = {
    "forward": re.compile(r"forward(?: (\d+) (\d+))?"),
    "backward": re.compile(r"backward(?: (\d+) (\d+))?"),
    "update": re.compile(r"update"),
    "exchange": re.compile(r"exchange|(?:gloo|nccl):\w+"),
    "wait": re.compile(r"wait"),
    "pause": re.compile(r"pause"),
}


@dataclass(frozen=True)
class Span:
    """Something that a rank did, in seconds from the start of the recording."""

    rank: int
    kind: str
    stage: int
    """The stage of a pipeline; elsewhere the rank."""
    microbatch: int | None
    begin: float
    end: float


_recordings: list[list[tuple[str, float, float]]] = []
"""Active recordings: this rank's work is added to each of them, under the names of KINDS."""


@contextmanager
def doing(name: str) -> Iterator[None]:
    """Record how long something takes."""
    began = time.perf_counter()
    yield
    for noted in _recordings:
        noted.append((name, began, time.perf_counter()))


class Timeline:
    """Records a few steps on every rank, if requested."""

    def __init__(self, world: World, wanted: bool) -> None:
        self._world, self._wanted = world, wanted
        self._spans: list[Span] = []

    @contextmanager
    def recording(self, now: bool = True, *, collectives: bool = False) -> Iterator[None]:
        """Record from the same step on every rank. `collectives` also records those that PyTorch starts by itself."""
        if not (self._wanted and now):
            yield
            return
        if dist.is_initialized():
            dist.barrier()
        noted: list[tuple[str, float, float]] = []
        _recordings.append(noted)
        began = time.perf_counter()
        if collectives:
            with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("the whole"):
                began = time.perf_counter()
                yield
            events = [(str(event.name), event.time_range.start, event.time_range.end) for event in profiler.events()]
            (zero,) = (begin for name, begin, _ in events if name == "the whole")
            noted += [(name, began + (begin - zero) / 1e6, began + (end - zero) / 1e6) for name, begin, end in events]
        else:
            yield
        _recordings.remove(noted)
        spans = (span_of(name, self._world.rank, begin - began, end - began) for name, begin, end in noted)
        self._spans += [span for span in spans if span is not None]

    def write(self, folder: Path) -> None:
        """Write all ranks' spans to `timeline.json`; every rank must call this."""
        if not self._wanted:
            return
        spans = [span for of_rank in self._world.gather(self._spans) for span in of_rank]
        if self._world.rank == 0:
            (folder / "timeline.json").write_text(json.dumps([asdict(span) for span in spans], indent=1))


class Clock:
    """Adds up the time that a rank waited."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        began = time.monotonic()
        with doing("wait"):
            yield
        self.waited_s += time.monotonic() - began


def span_of(name: str, rank: int, begin: float, end: float) -> Span | None:
    """The span of an event of the profiler; None for events outside of the schedule."""
    for kind, pattern in KINDS.items():
        if found := pattern.fullmatch(name):
            stage, microbatch = [int(number) for number in found.groups() if number] or (rank, None)
            return Span(rank, kind, stage, microbatch, begin, end)
    return None
