"""Advice where ranks lost each other: which rank to look at, and what to compare."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.diagnosis import gangs, meeting, waiting
from muster.diagnosis.causes import Cause
from muster.diagnosis.launchers import Process
from muster.diagnosis.raised import Frame
from muster.wire.verdicts import code_of

_OWN_WAITS = (
    (
        re.compile(r"/multiprocessing/(?:popen_\w+|process)\.py"),
        "its child processes to end (one that has filled a `multiprocessing.Queue` ends only after it was emptied)",
    ),
    (re.compile(r"/multiprocessing/\w+\.py|/concurrent/futures/\w+\.py"), "other processes or threads of its own"),
    (re.compile(r"/(?:threading|queue)\.py"), "other threads of its own"),
)
_LOOKED = re.compile(r"connect(?:/validate)? to (?:host )?[\[(]?([\w.-]{1,200})\]?(?::|, )(\d{1,5})\b")
_MOST_LINES = 200
_REACHED = re.compile(r"connect to \(([\w.:]+), (\d+)\)")


def ranks(numbers: Sequence[int]) -> str:
    return f"{'ranks' if len(numbers) > 1 else 'rank'} {', '.join(map(str, numbers))}"


def question(blame: gangs.Blame, count: int) -> str:
    """The ranks of which one is to blame, where it is not known which."""
    if not blame.in_question or len(blame.in_question) == count:
        return ""
    return f"it is not known whom they waited for: {ranks(blame.in_question)} did not answer"


def why_not_there(blame: gangs.Blame) -> str:
    """What to do about the rank that the others waited for."""
    assert blame.process is not None
    rank = blame.process.rank.rank
    if blame.next:
        return blame.next
    if blame.process.rank.succeeded:
        return (
            f"Let every rank take as many steps: give rank {rank} as much data (`drop_last=True`, an "
            f"even sampler), or `Join`."
        )
    if blame.where is not None:
        place = _place(blame.where)
        who = ranks(blame.all_of) if blame.all_of else f"rank {rank}"
        if not blame.sure:
            source = f" (`{blame.where.source[:100]}`)" if blame.where.source else ""
            return (
                f"Compare {place}{source} with what the others call: all ranks of a group have to call the same in "
                "the same order."
            )
        return f"Find out why {who} stayed at {place} while the others waited."
    return f"`muster logs` of rank {rank} shows how far it came; the others waited for it."


def goes_on(blame: gangs.Blame, said: str) -> str:
    """At a time limit that only some of the ranks exceeded."""
    assert blame.process is not None
    who = ranks(blame.all_of or (blame.process.rank.rank,))
    place = f"at {_place(blame.where)}" if blame.where is not None and not blame.where.of_library else ""
    at = place or (f"after `{said[:120]}`" if said else "there")
    return f"Find out what {who} still did {at} when the others had ended; if it was work, raise limits.timeout."


def _place(frame: Frame) -> str:
    function = f", in {frame.function}," if frame.function not in ("", "<module>") else ""
    return f"{waiting.short(frame.file)} line {frame.line}{function}"


def nobody_named(first: Cause, blame: gangs.Blame, processes: Sequence[Process]) -> str:
    """What to do where none can be named."""
    if first.code == "rendezvous":
        return _not_met(first, processes)
    if blame.in_question:
        return (
            f"Compare what {ranks(blame.in_question)} did last: all ranks have to call the same "
            f"collectives in the same order."
        )
    return code_of("collective").next


def _not_met(first: Cause, processes: Sequence[Process]) -> str:
    counted = meeting.joined([raised.line for process in processes for raised in process.log.raised])
    if counted is not None and counted[0] == len(processes) < counted[1]:
        return (
            f"All {counted[0]} ranks of the job came, and the script waits for {counted[1]}: take the world size from "
            "WORLD_SIZE, or start as many ranks."
        )
    if reached := _REACHED.search(first.headline):
        return (
            f"The ranks did not reach {reached[1]}:{reached[2]}: is it started, and is that "
            f"MASTER_ADDR and MASTER_PORT as "
            "Muster sets them?"
        )
    return (
        "Check that every rank is started, that all agree on the world size (WORLD_SIZE), and that the nodes reach "
        "MASTER_ADDR:MASTER_PORT as Muster sets them."
    )


def _still_looking(running: Sequence[Process]) -> str:
    """At a time limit at which no rank had found the others."""
    said = (line for process in running for line in process.log.lines[-_MOST_LINES:])
    looked = next((match for line in said if (match := _LOOKED.search(line))), None)
    where = f" They looked at {looked[1]}:{looked[2]}." if looked else ""
    stacks = [stack for process in running if (stack := waiting.stack_of(process)) is not None]
    if any("/elastic/" in frame.file for stack in stacks for frame in stack.frames):
        return "The launchers still looked for each other: `--rdzv-id`, `--rdzv-endpoint` and `--nnodes` must be alike."
    taken = "MASTER_ADDR, MASTER_PORT and WORLD_SIZE as Muster sets them"
    return f"The ranks still looked for each other.{where} Take {taken}."


def _awaited(process: Process) -> str:
    """The child process or thread for which a process waited, from the library's part of its stack."""
    stack = waiting.stack_of(process)
    inner = stack.frames[0].file if stack is not None and stack.frames else ""
    return next((whom for pattern, whom in _OWN_WAITS if pattern.search(inner)), "")


def needs_longer(running: Sequence[Process]) -> str:
    """At a time limit where no rank is to blame."""
    usual = code_of("timeout").next
    if len(running) > 1 and all(waiting.waits(item) or waiting.seems_to_wait(item) for item in running):
        if waiting.places(running):
            return "All ranks wait for each other: compare the calls in which they are; each needs its counterpart."
        if (place := waiting.place_of(running[0])) is not None and all(map(waiting.receives, running)):
            source = f" (`{place.source[:100]}`)" if place.source else ""
            return (
                f"All ranks wait for each other at {_place(place)}{source}: each receives before anybody has sent. "
                "Let one of each pair send first."
            )
    if running and all(map(waiting.is_meeting, running)):
        return _still_looking(running)
    place = waiting.place_of(running[0]) if len(running) == 1 else None
    if place is None or place.of_library:
        return usual
    function = f", in {place.function}" if place.function not in ("", "<module>") else ""
    if whom := _awaited(running[0]):
        where = f"{waiting.short(place.file)} line {place.line}{function}"
        return f"It waited for {whom} at {where}: see what keeps them. If that was work, raise limits.timeout."
    return f"{usual} It was at {waiting.short(place.file)} line {place.line}{function}: is that where it should be?"
