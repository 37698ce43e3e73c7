"""Signs of how ranks ended and where they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from muster.diagnosis import waiting
from muster.diagnosis.causes import RENDEZVOUS, Cause
from muster.diagnosis.gangs import has_ended, likeness
from muster.diagnosis.launchers import Process
from muster.diagnosis.ranking.signs import Sign

_ALONE = {
    Sign.RAISED: Sign.ALONE_RAISED,
    Sign.CRASHED: Sign.ALONE_CRASHED,
    Sign.LEFT_WITH_CODE: Sign.ALONE_LEFT_WITH_CODE,
    Sign.LOST_PEER: Sign.ALONE_LOST_PEER,
    Sign.LEFT_WELL: Sign.ALONE_LEFT_WELL,
    Sign.STOPPED: Sign.ALONE_STOPPED,
    Sign.IN_A_COLLECTIVE: Sign.ALONE_IN_A_COLLECTIVE,
    Sign.SEEMED_TO_WAIT: Sign.ALONE_SEEMED_TO_WAIT,
    Sign.BUSY: Sign.ALONE_BUSY,
    Sign.NO_STACK: Sign.ALONE_NO_STACK,
}
_FEWEST = 3


def ends(gang: Mapping[int, Process], causes: Mapping[int, Cause]) -> Iterable[tuple[int, Sign]]:
    """How each rank ended, and whether it alone ended so."""
    ended = {rank: end for rank, process in gang.items() if (end := _end(process, causes.get(rank))) is not None}
    yield from ended.items()
    if len(gang) >= _FEWEST:
        yield from _alone(ended)
        if 0 in gang:
            yield 0, Sign.FIRST_RANK
    alike = Counter(map(likeness, causes.values()))
    for rank, cause in causes.items():
        if alike[likeness(cause)] > 1:
            yield rank, Sign.FAILED_AS_ANOTHER
    when = {rank: gang[rank].rank.ended_at or 0.0 for rank, end in ended.items() if end is not Sign.STOPPED}
    if len(when) > 1:
        yield min(when, key=lambda rank: when[rank]), Sign.ENDED_FIRST
    for rank, end in ended.items():
        raised = gang[rank].log.raised
        if end not in (Sign.RAISED, Sign.LOST_PEER) and any(one.line and one.setting != "ignored" for one in raised):
            yield rank, Sign.LOGGED_AN_EXCEPTION


def places(gang: Mapping[int, Process], causes: Mapping[int, Cause]) -> Iterable[tuple[int, Sign]]:
    """Where each rank was that was still running, and whether it alone was there."""
    running = {rank: process for rank, process in gang.items() if process.rank.expected and rank not in causes}
    doing = {rank: _doing(process) for rank, process in running.items()}
    yield from doing.items()
    if len(doing) > 1:
        yield from _alone(doing)
    at = {rank: place for rank, process in running.items() if (place := waiting.key_of(process)) is not None}
    counted = Counter(at.values())
    for rank, place in at.items():
        if counted[place] == 1 < len(at) and len(counted) < len(at):
            yield rank, Sign.AT_A_PLACE_OF_ITS_OWN


def _end(process: Process, cause: Cause | None) -> Sign | None:
    if cause is None:
        return Sign.LEFT_WELL if has_ended(process) else Sign.STOPPED if process.rank.expected else None
    if cause.weight >= RENDEZVOUS:
        return Sign.LOST_PEER
    if cause.code in ("signal", "exit_code"):
        return Sign.CRASHED if cause.code == "signal" else Sign.LEFT_WITH_CODE
    return Sign.RAISED


def _doing(process: Process) -> Sign:
    if waiting.stack_of(process) is None:
        return Sign.NO_STACK
    if waiting.waits(process):
        return Sign.IN_A_COLLECTIVE
    return Sign.SEEMED_TO_WAIT if waiting.seems_to_wait(process) else Sign.BUSY


def _alone(found: Mapping[int, Sign]) -> Iterable[tuple[int, Sign]]:
    counted = Counter(found.values())
    return ((rank, _ALONE[sign]) for rank, sign in found.items() if counted[sign] == 1)
