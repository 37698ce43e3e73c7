"""The output of one process, parsed once: its exceptions, the stack that it showed at the end, its last words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice

from muster.diagnosis.raised import Frame, Raised, Reader
from muster.diagnosis.text import lines_of, owner_of

MOST_LINES = 30
_LONGEST_LINE = 500


@dataclass(frozen=True)
class Stack:
    """Where a process was when it was stopped."""

    rank: int
    frames: tuple[Frame, ...]
    """Innermost first; none where it did not answer."""
    threads: tuple[tuple[Frame, ...], ...] = ()
    """Those of its other threads that were in the user's own code."""

    @property
    def own(self) -> Frame | None:
        """The innermost line of the user's own code."""
        return next((frame for frame in self.frames if not frame.of_library), None)

    @property
    def waits(self) -> str:
        """The collective or the rendezvous in which it waits for others; empty where it does something else."""
        for frame in self.frames:
            if EXCHANGES.search(frame.file):
                outer = [item for item in self.frames if EXCHANGES.search(item.file) and item.function not in WRAPPERS]
                return outer[-1].function if outer else frame.function
            if not frame.of_library:
                return ""
        return ""


@dataclass(frozen=True)
class Log:
    """One process's output as evidence."""

    lines: tuple[str, ...]
    raised: tuple[Raised, ...]
    stacks: tuple[Stack, ...]
    stopped_at: int | None = None
    """The first line that was printed after Muster had begun to end it; None: not known."""

    @cached_property
    def _inside(self) -> frozenset[int]:
        """Indices of the lines that belong to exceptions."""
        return frozenset(index for raised in self.raised for index in range(raised.begin, raised.end))

    def words_between(self, begin: int, end: int | None = None, records: re.Pattern[str] | None = None) -> list[str]:
        """The lines that the program meant for people: no noise, no stacks, and only those log records that `records`
        fits.
        """
        return list(self._words(begin, end, records))

    def first_words(self, count: int, end: int | None = None, records: re.Pattern[str] | None = None) -> list[str]:
        """The first of those lines; what stands below them is not read."""
        return list(islice(self._words(0, end, records), count))

    def _words(self, begin: int, end: int | None, records: re.Pattern[str] | None = None) -> Iterator[str]:
        for index in range(begin, len(self.lines) if end is None else min(end, len(self.lines))):
            line = self.lines[index]
            if index not in self._inside and (not is_noise(line) or (records and _is_wanted(line, records))):
                yield line

    def words_after(self, raised: Raised) -> list[str]:
        return self.words_between(raised.end)

    def last_words(self, count: int) -> list[str]:
        found: list[str] = []
        for index in range(len(self.lines) - 1, -1, -1):
            if index not in self._inside and not is_noise(self.lines[index]):
                found.append(self.lines[index])
                if len(found) == count:
                    break
        if not found and not self.raised:
            # A program that indents all its output.
            found = [line.strip() for line in reversed(self.lines) if line.strip()][:count]
        return found[::-1]

    def indented(self, count: int) -> list[str]:
        """Those of the last lines that are indented and belong to no exception."""
        begin = max(0, len(self.lines) - count)
        last = (line for i, line in enumerate(self.lines[begin:], begin) if i not in self._inside)
        return [line.strip() for line in last if line.startswith((" ", "\t")) and line.strip()]

    def without(self, said: str) -> Log:
        """The log without a line."""
        return replace(self, lines=tuple("" if line.strip() == said else line for line in self.lines))

    def from_line(self, said: str) -> tuple[str, ...]:
        """The lines to show from one on."""
        at = next((i for i in range(len(self.lines) - 1, -1, -1) if self.lines[i].strip() == said), 0)
        return tuple(line[:_LONGEST_LINE] for line in self.lines[at : at + MOST_LINES])

    def closing(self, raised: Raised | None) -> tuple[str, ...]:
        """The lines to show: the exception's, or the last ones."""
        shown = self.lines[raised.begin : raised.end] if raised else self.lines
        if raised is not None and len(shown) > MOST_LINES:
            shown = (*shown[:8], "…", *shown[-(MOST_LINES - 9) :])
        return tuple(line[:_LONGEST_LINE] for line in shown[-MOST_LINES:])


EXCHANGES = re.compile(
    r"torch/distributed/(?!elastic)|horovod/|torch/_C/|torch/autograd/graph\.py|multihost_utils|jax/_src/distributed"
    r"|deepspeed/comm|mpi4py|/grpc/|tensorflow/python/(?:distribute|eager)/"
)
MEETING = re.compile(
    r"(?:init_process_group|init_rpc|_?\w*rendezvous\w*|init_distributed|_create_c10d_store|initialize_distributed)$"
)
"""Functions of libraries in which ranks find each other."""
WRAPPERS = ("wrapper", "inner", "decorate_context", "_call_impl", "_wrapped_call_impl")
_MARK = "muster: where rank "
_ASKED = "muster: somebody asks where rank "
_STACK_OF = re.compile(r"muster: where rank (\d+) \(process \d+\) was when it was stopped:$")
_SOURCE_OF = re.compile(r'muster: "(?P<file>[^"]*)" line (?P<line>\d+): (?P<source>.*)$')
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ (?:\[[^\]]*\] )?\(most recent call first\):$")
_STACK_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.+)$')
_OF_STACK = re.compile(
    _THREAD.pattern + r'|  File "[^"]*", line \d+ in .+$|' + r"  (?:Garbage-collecting|<no Python frame>|\.\.\.)$"
)
_NOISE = re.compile(
    r"\s*$|\s+\S|[-=*_─]{5,}"
    r"|\W{1,4}View (?:run|experiment) .{0,200}\bat: http"
    r"|(?:wandb|swanlab|comet|clearml|mlflow|neptune)\b.*?:"
    r"|make(?:\[\d+\])?: \*\*\* \[|ninja: build stopped"
    r"|\S+:\d+: \w*Warning: |\w*Warning: "
    r"|\[[WI]\d{4} |\[[WI]\S* \d\d|[WIE]\d{4} \d\d:|\d+%\||[^|]{0,60}\d+%\|"
    r"|(?:srun|slurmstepd|salloc): (?!fatal: |error: (?!.{0,80}: tasks? |\*\*\* ))"
    r"|\[[^\]\s]{1,100}\] (?:\*\*\* (?:Process received|End of error)|Signal(?: code)?:|Failing at|\[ ?\d)"
    r"|=   (?:BAD TERMINATION|PID |EXIT CODE|CLEANING UP|YOU CAN IGNORE)"
    r"|\[[^\]\s]{1,100}\] \*\*\* (?:MPI_ERRORS_ARE_FATAL|  and MPI|on communicator|reported by)"
    r"|(?:Current thread|Thread) 0x[0-9a-f]{4,16} "
    r"|Exception ignored in|object (?:address|refcount|type|type name|repr) +: |lost sys\.stderr"
    r"|.{0,200}resource_tracker|.{0,60}leaked semaphore"
    r"|(?:\S+: line \d+: +\d+ )?(?:Aborted|Killed|Terminated|Segmentation fault|Bus error)\b.{0,200}$"
    r"|Set the environment variable HYDRA_FULL_ERROR|See https://hydra\.cc"
    r"|The following values were not passed to `accelerate|To avoid this warning pass in values"
    r"|NOTE: |note: run with `RUST_BACKTRACE|Node\.js v\d|Process [\w:-]+:$|Exception in thread |future: <Task"
    r"|Task exception was never retrieved|-- Process \d+ terminated|Execution halted$|\^+$"
)
_RECORD = re.compile(
    r"(?:\[?\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|\[?\d+/\d+ \d\d:|(?:INFO|DEBUG|WARNING|NOTICE|TRACE)\b).{0,80}?"
    r"(?:\b(?:INFO|DEBUG|WARNING|WARN|NOTICE|TRACE)\b|^INFO|^DEBUG)|(?:INFO|DEBUG|WARNING|NOTICE|TRACE|WARN) ?[:|\]-]"
)


_Shown = tuple[int, tuple[Frame, ...], list[tuple[Frame, ...]]]
"""A rank, the stack of its script, and those of its other threads."""


@lru_cache(maxsize=8)
def read(text: str) -> Log:
    """Parse what one process printed."""
    lines = [owner_of(line)[1] for line in lines_of(text)]
    stacks: list[Stack] = []
    stopped_at = None
    if _ASKED in text:
        lines = _without_answers(lines)
    if _MARK in text:
        lines, stacks, stopped_at = _without_stacks(lines)
    while lines and not lines[-1]:
        lines.pop()
    return Log(tuple(lines), tuple(Reader(lines).read()), tuple(stacks), stopped_at)


def is_record(line: str) -> bool:
    """Whether a line is an unimportant record in a program's log."""
    return bool(_RECORD.match(line))


def _is_wanted(line: str, records: re.Pattern[str]) -> bool:
    return is_record(line) and not _NOISE.match(line) and bool(records.search(line))


def is_noise(line: str) -> bool:
    """Whether a line says nothing about how the program ended: decoration, progress bars, unimportant records."""
    return bool(_NOISE.match(line)) or is_record(line)


def _without_answers(lines: Sequence[str]) -> list[str]:
    """The program's own output, without the stacks that `muster stacks` requested while it ran."""
    kept: list[str] = []
    inside = False
    for line in lines:
        before, mark, _ = line.partition(_ASKED)
        if mark:
            kept += [before.rstrip()] if before.strip() else []
            inside = True
        elif not (inside and (not line or _OF_STACK.match(line))):
            inside = False
            kept.append(line)
    return kept


def _without_stacks(lines: Sequence[str]) -> tuple[list[str], list[Stack], int | None]:
    """The program's own output, the stacks that it was made to show, and where those began."""
    kept: list[str] = []
    found: list[_Shown] = []
    sources: dict[tuple[str, int], str] = {}
    stopped_at = None
    index = 0
    while index < len(lines):
        if source := _SOURCE_OF.match(lines[index]):
            sources[source["file"], int(source["line"])] = source["source"]
            index += 1
            continue
        # Joined to a line without a line break.
        before, mark, rest = lines[index].partition(_MARK)
        match = _STACK_OF.match(mark + rest) if mark else None
        if not match:
            kept.append(lines[index])
            index += 1
            continue
        if before.strip():
            kept.append(before.rstrip())
        stopped_at = len(kept) if stopped_at is None else stopped_at
        end = index + 1
        while end < len(lines) and (not lines[end] or _OF_STACK.match(lines[end])):
            end += 1
        threads = [thread for thread in _threads(lines[index + 1 : end]) if thread]
        main = _main_thread(threads)
        busy = [item for item in threads if item is not main and any(not frame.of_library for frame in item)]
        found.append((int(match[1]), main, busy))
        _answered_together(found, threads)
        index = end
    stacks = [
        Stack(rank, _with_sources(main, sources), tuple(_with_sources(thread, sources) for thread in busy))
        for rank, main, busy in found
    ]
    return kept, stacks, stopped_at


def _answered_together(found: list[_Shown], threads: Sequence[tuple[Frame, ...]]) -> None:
    """In a shared log: processes that were asked before earlier ones had answered do so in that order."""
    mains = [thread for thread in threads if thread[-1].function == "<module>"]
    asked = found[-len(mains) :]
    if len(mains) < 2 or len(asked) < len(mains) or any(main for _, main, _ in asked[:-1]):
        return
    found[-len(mains) :] = [(rank, main, []) for (rank, _, _), main in zip(asked, mains, strict=True)]


def _with_sources(frames: Sequence[Frame], sources: Mapping[tuple[str, int], str]) -> tuple[Frame, ...]:
    return tuple(replace(frame, source=sources.get((frame.file, frame.line), "")) for frame in frames)


def _main_thread(threads: Sequence[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    """The stack of the thread that runs the script."""
    whole = [thread for thread in threads if thread[-1].function == "<module>"]
    return (whole or list(threads[-1:]) or [()])[0]


def _threads(lines: Sequence[str]) -> Iterator[tuple[Frame, ...]]:
    frames: list[Frame] = []
    for line in lines:
        if _THREAD.match(line):
            yield tuple(frames)
            frames = []
        elif match := _STACK_FRAME.match(line):
            frames.append(Frame(match["file"], int(match["line"]), match["function"]))
    yield tuple(frames)
