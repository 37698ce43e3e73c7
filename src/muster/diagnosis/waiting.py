"""Where processes were, and whether they waited for others there: by the library that they were in, by the source of
their line, by the names of their functions."""

from __future__ import annotations

import re
import signal as signals
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from muster.diagnosis.launchers import Process
from muster.diagnosis.log import EXCHANGES, MEETING, WRAPPERS, Stack
from muster.diagnosis.raised import Frame, Raised
from muster.wire.verdicts import Verdict

# Calls that return when all ranks have come, whoever wrote them: mpi4py leaves no frames of its own in a stack.
_MEETS_ALL = re.compile(
    r"(?:comm|COMM_WORLD|MPI|dist|hvd|world|group|cart)\w*\.(?:I?[Bb]arrier|I?[Aa]ll_?reduce|I?[Bb](?:road)?cast|I?[Gg]ather"
    r"|I?[Ss]catter|I?[Rr]educe|I?[Aa]ll_?gather|I?[Aa]ll_?to_?all|[Ss]can|[Ss]end_?recv|[Rr]ecv|[Ss]end|[Pp]robe)\w*\("
    r"|\.(?:Barrier|Allreduce|allreduce|Bcast|Allgather|allgather|Alltoall|monitored_barrier)\w*\("
)
_OF_TWO = re.compile(r"\b(?:I?[sS]?[sS]end|I?[Rr]ecv|[Ss]end_?recv|i(?:send|recv))(?:_\w{1,20})?\(")
_OF_ALL = re.compile(
    r"(?i)\.(?:i?barrier|monitored_barrier|i?all_?reduce|i?b(?:road)?cast|i?gather|i?scatter|i?reduce|i?all_?gather)\w{0,20}\("
)
# Calls and functions that usually wait for another process.
_WAITS_IN = re.compile(
    r"\b(?:select\.select|recv\w*|accept|sendall|urlopen|getresponse|wait_for\w*|barrier|rendezvous|gather\w*|all_?reduce|broadcast)\("
)
_WAITING_NAME = re.compile(
    r"(?i)^_?(?:\w*barrier\w*|wait(?:_for)?_?\w*|recv\w*|receive\w*|accept|\w*gather\w*|\w*reduce\w*|\w*broadcast\w*|bcast"
    r"|rendezvous|meet\w*|arrive\w*|sync(?:hronize)?|handshake|getresponse|urlopen|total|await_\w+|pull\w*|serve\w*"
    r"|select|poll)$"
)
_READS_FROM_OTHERS = re.compile(r"/python3[.\d]*/(?:socket|ssl|selectors|multiprocessing/connection)\.py$")
"""Modules of Python's own library that read from, or write to, connections with others."""
_CONNECTS = re.compile(r"(?:create_)?connect(?:ion)?$|getaddrinfo$")
_RECEIVES = re.compile(r"(?mi)^_?(?:i?recv|receive|read(?:exactly|line)?|get|take|pop)(?:_|$|into|all|bytes|obj)")
_CALL = re.compile(r"(\w+)\(")
_FEW_LINES = 8
_NO_NAMES = ("<module>", "main", "train", "run", "worker", "<lambda>", "fit", "step")

Place = tuple[str, int]


def stack_of(process: Process) -> Stack | None:
    """Where a process was when Muster ended it."""
    stacks = process.log.stacks
    own = [stack for stack in stacks if stack.rank == process.rank.rank]
    return next((stack for stack in own or list(stacks) if stack.frames), None)


def is_frozen(process: Process) -> bool:
    """Whether it neither showed its stack when it was asked to nor ended when it was told to."""
    asked = [stack for stack in process.log.stacks if stack.rank == process.rank.rank]
    killed = process.rank.expected and process.rank.signal == signals.SIGKILL
    return killed and bool(asked) and not any(stack.frames for stack in asked)


def waits(process: Process) -> bool:
    """Whether it certainly waited for others: in a collective or a rendezvous."""
    stack = stack_of(process)
    if stack is None:
        return False
    return bool(stack.waits) or bool(not stack.frames[0].of_library and _MEETS_ALL.search(stack.frames[0].source))


def seems_to_wait(process: Process) -> bool:
    """Whether names suggest it: of functions, or of what its line calls."""
    stack = stack_of(process)
    if stack is None:
        return False
    inner, own = stack.frames[0], stack.own
    reads = _READS_FROM_OTHERS.search(inner.file) and not _CONNECTS.match(inner.function)
    # A line further out may call several things.
    calls = own is not None and _WAITS_IN.search(own.source)
    return bool(reads or calls) or any(_WAITING_NAME.match(frame.function) for frame in stack.frames)


def listens(process: Process) -> bool:
    """Whether it waits for another to come."""
    stack = stack_of(process)
    return stack is not None and stack.frames[0].function == "accept" and stack.frames[0].of_library


def is_meeting(process: Process) -> bool:
    """Whether it was still looking for the others: in a library's rendezvous, or in that of its launcher."""
    stack = stack_of(process)
    return stack is not None and any(MEETING.match(frame.function) for frame in stack.frames)


def receives(process: Process) -> bool:
    """Whether it waits for a message from one other rank."""
    stack = stack_of(process)
    return stack is not None and any(
        _RECEIVES.match(frame.function) or _RECEIVES.search(_called(frame.source)) for frame in stack.frames
    )


def _called(source: str) -> str:
    """The names of a line's calls, each at the beginning of a line."""
    return "\n".join(_CALL.findall(source))


def place_of(process: Process) -> Frame | None:
    """The innermost line of the user's own code."""
    stack = stack_of(process)
    return stack.own or stack.frames[0] if stack else None


def answering(process: Process) -> Frame | None:
    """The innermost line of the user's own code in a thread other than the one that runs the script."""
    stack = stack_of(process)
    threads = stack.threads if stack else ()
    return next((frame for thread in threads for frame in thread if not frame.of_library), None)


def key_of(process: Process) -> Place | None:
    place = place_of(process)
    return (place.file, place.line) if place else None


def failed_at(raised: Raised | None) -> Frame | None:
    """The innermost line of the user's own code in a traceback."""
    frames = raised.frames if raised is not None else ()
    return next((frame for frame in reversed(frames) if not frame.of_library), None)


@dataclass(frozen=True)
class GivenUp:
    """Where ranks gave up waiting, according to their tracebacks."""

    lines: frozenset[Place]
    functions: frozenset[tuple[str, str]]
    """The user's own functions that wait in a loop and raise when that takes too long."""


def given_up(failed: Iterable[Raised]) -> GivenUp:
    lines: set[Place] = set()
    functions: set[tuple[str, str]] = set()
    for raised in failed:
        frame = failed_at(raised)
        if frame is None:
            continue
        lines.add((frame.file, frame.line))
        if raised.frames[-1] is frame and frame.source.startswith("raise") and frame.function not in _NO_NAMES:
            functions.add((frame.file, frame.function))
    return GivenUp(frozenset(lines), frozenset(functions))


def is_where_they_failed(process: Process, failed: GivenUp) -> bool:
    """Whether it was in the call in which others gave up waiting."""
    stack = stack_of(process)
    own = stack.own if stack else None
    return own is not None and ((own.file, own.line) in failed.lines or (own.file, own.function) in failed.functions)


def at_an_odd_place(candidates: Sequence[Process]) -> list[Process]:
    """Those that are not where most are, if most are in one place."""
    at = {process.rank.rank: key_of(process) for process in candidates}
    counted = Counter(at.values())
    common, count = counted.most_common(1)[0]
    if count <= len(candidates) / 2 or (common is None and count < len(candidates) - 1):
        return list(candidates)
    odd = [process for process in candidates if at[process.rank.rank] != common]
    return odd or list(candidates)


def calls_of(process: Process) -> tuple[Place, ...]:
    """The lines of the user's own code in which a process waited, according to its stack or its traceback."""
    frames = _frames(process)
    own = tuple((frame.file, frame.line) for frame in frames if not frame.of_library)
    below = frames[1 + max((i for i, frame in enumerate(frames) if not frame.of_library), default=-1) :]
    # One line may call either (apart-torch-broadcast).
    called = next((f.function for f in below if EXCHANGES.search(f.file) and f.function not in WRAPPERS), "")
    return (*own, (called, 0)) if own and called else own


def call_of(process: Process) -> Frame | None:
    """The innermost line of the user's own code in which a process waited."""
    return next((frame for frame in reversed(_frames(process)) if not frame.of_library), None)


def at_call(process: Process) -> str:
    frame = call_of(process)
    return f"{short(frame.file)} line {frame.line}: `{frame.source[:80]}`" if frame is not None else ""


def _frames(process: Process) -> tuple[Frame, ...]:
    """Outermost first."""
    stack, raised = stack_of(process), process.log.raised[-1] if process.log.raised else None
    return tuple(reversed(stack.frames)) if stack else raised.frames if raised else ()


def is_before(calls: tuple[Place, ...], others: tuple[Place, ...]) -> bool:
    """Whether a stack is at an earlier line than others where they part, in the same file."""
    mine, theirs = next((pair for pair in zip(calls, others, strict=False) if pair[0] != pair[1]), (("", 0), ("", 0)))
    return mine[0] == theirs[0] and mine[1] < theirs[1]


def without_counterpart(processes: Sequence[Process]) -> list[Process]:
    """Those that still send to one other, or receive from it, where all the rest have come to a call of all ranks
    further down (t-mpi-deadlock-order)."""
    at = {process.rank.rank: call_of(process) for process in processes}
    pairs = [item for item in processes if (frame := at[item.rank.rank]) and _OF_TWO.search(frame.source)]
    rest = [item for item in processes if item not in pairs]
    of_all = all((frame := at[item.rank.rank]) is not None and _OF_ALL.search(frame.source) for item in rest)
    if not pairs or not rest or not of_all:
        return []
    further = all(is_before(calls_of(one), calls_of(other)) for one in pairs for other in rest)
    return pairs if further else []


def in_one_place(candidates: Sequence[Process]) -> bool:
    """Whether all are known to have been at the same line."""
    keys = {key_of(process) for process in candidates}
    return len(keys) == 1 and None not in keys


def doing(process: Process) -> str:
    """The position in its stack, to follow "rank 2"; empty where it showed none."""
    stack = stack_of(process)
    if stack is None:
        return ""
    place = stack.own or stack.frames[0]
    inside = f"in {stack.waits}, " if stack.waits else ""
    inner = stack.frames[0]
    within = f" ({inner.function} of {short(inner.file)})" if inner.of_library and not stack.waits else ""
    source = f": `{place.source[:80]}`" if place.source else ""
    return f"was {inside}at {short(place.file)} line {place.line}, in {place.function}{within}{source}"


def places(processes: Sequence[Process]) -> str:
    """Where the ranks were, each place once: `ranks 0, 2 in all_reduce (train.py line 12); rank 1 in barrier (…)`."""
    found: dict[str, list[int]] = {}
    for process in processes:
        if said := doing(process):
            found.setdefault(said.removeprefix("was "), []).append(process.rank.rank)
    if len(found) < 2:
        return ""
    return "; ".join(
        f"{'ranks' if len(n) > 1 else 'rank'} {', '.join(map(str, sorted(n)))} {at}" for at, n in found.items()
    )


def with_last_lines(made: Verdict, processes: Sequence[Process]) -> Verdict:
    """A verdict on a time limit, with the last output of the process in question."""
    if made.code != "timeout" or made.lines:
        return made
    named = [item for item in processes if made.rank is None or item.rank.rank == made.rank]
    return replace(made, lines=named[0].log.closing(None)[-_FEW_LINES:]) if len(named) == 1 else made


def not_there(process: Process) -> str:
    if is_frozen(process):
        return (
            "did not answer the others: it could not even show where it was and had to be killed, like a process that "
            "is stopped (SIGSTOP) or hangs in the kernel"
        )
    said = doing(process)
    return f"did not answer the others: it {said}" if said else "did not answer the others"


def short(file: str) -> str:
    """A path as a person of the project would write it."""
    for mark in ("/work/", "/site-packages/", "/dist-packages/", "/python3.11/", "/python3.12/"):
        if mark in file:
            return file.rpartition(mark)[2]
    return file.removeprefix("./")
