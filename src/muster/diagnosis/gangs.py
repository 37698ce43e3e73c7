"""Which of several processes is to blame: the one whose failure the others only noticed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.diagnosis import differences, waiting
from muster.diagnosis.causes import DEFINITE, NAMES_THE_ABSENT, Cause, cause_of, complaint, last_words
from muster.diagnosis.launchers import Process, started_by
from muster.diagnosis.log import Log
from muster.diagnosis.raised import Frame, Raised

_NAMED = re.compile(
    r"[Rr]anks? \[?(?P<failed>\d+)(?:, ?\d+){0,8}\]? (?:failed to (?:pass|respond|join)|did not|is not ready|exited"
    r"|was lost|disconnected|timed out)"
    r"|(?:remote|peer) rank (?P<remote>\d+)|[Mm]issing (?:ranks|workers|peers|tasks)?:? ?\[?(?P<missing>\d+)"
    r"|(?:from|waiting for) (?:rank|worker|peer|process) ?(?P<awaited>\d+)"
    r"|(?:worker|peer|trainer|node) (?P<worker>\d+) (?:is (?:not responding|gone|dead|un|silent)|(?:did|has|does) not"
    r"|went silent|vanished|timed out|missed|stopped)"
    r"|rank: (?P<nccl>\d+), .{0,300}(?:remote process exited|timed? ?out)"
)
_MENTIONED = re.compile(r"(?i)\b(?:rank|worker|peer|process|client|trainer|member|task)s?[ _#:=]{0,2}(\d{1,6})\b")
_KEY = re.compile(
    r"keys: \S{0,80}//(?:cpu|cuda)//\d+/(\d+)$"
    r"|keys: (?!\S{0,80}//(?:cpu|cuda)//)\S{0,120}[/_:.-](?!(?:step|epoch|iter|round|barrier|phase|gen|v)\w{0,12})"
    r"[a-z]{0,10}[/_:.-]?(\d{1,6})$"
)
_BLAMED = re.compile(
    r"\b(?:[Rr]ank|[Ww]orker|[Tt]ask|[Pp]rocess|[Pp]eer|[Cc]lient|[Tt]rainer|[Aa]ctor|[Mm]ember|[Rr]eplica|[Cc]hild)"
    r" (?P<rank>\d+)\b(?: on \S+)?"
    r"(?::| failed| fails| raised| raises| had| has| hit| report(?:s|ed)| crashed| died| aborted)\s*(?P<said>.{3,200})"
    r"|(?i:fail\w*|errors?|exceptions?|raised) (?:on|in|at|from|by) (?:rank"
    r"|worker)s?(?:\(s\))? ?\[?(?P<on>\d+)\b(?!\]?, ?\d)"
    r"|[Rr]anks?(?:\(s\))?:? ?(?:\w+\()?\[(?P<only>\d+)\]"
)
_FAILED = re.compile(r"\d (?:has |had )?(?:failed|fails|raise[sd]|hit|report(?:s|ed)|crashed|died|aborted)\b")
_MISSED = re.compile(
    r"(?i)\b(?:not|never|missing|absent|late|silent|no (?:answer|reply|heartbeat|\w+ from)|time(?:d[ -]?)?-?out"
    r"|within \d|still)\b|n't\b"
)
NAMES_EXCEPTION = re.compile(r"\b(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{1,60}(?:Error|Exception)\b ?[(:]")
_LATE = re.compile(r"(?i)time(?:d[ -]?)?[ -]?out|DEADLINE")
_AT_ONCE_S = 1.0
_LAST_WORDS = 40
_FEW_WORDS = 10
_MANY = 64
"""With more ranks than this, fewer words are compared: a verdict must not be late."""
_TROUBLE = re.compile(
    r"(?i)\b(?:error|exception|cannot|can't|could not|failed|fatal|nan|inf|corrupt|truncated|traceback)\b|Error\b"
)


LEFT = "had ended (exit code 0) while the others still needed it"


@dataclass(frozen=True)
class Blame:
    """A process that the others waited for, and the reason to think so."""

    process: Process | None
    why: str
    """What it did, to follow "rank 2 on node-0"."""
    in_question: tuple[int, ...] = ()
    """Where none can be named: the candidates."""
    where: Frame | None = None
    sure: bool = True
    all_of: tuple[int, ...] = ()
    """Where several were in the same place, while the rest waited for them."""
    next: str = ""
    """What to do about it, where that is more than looking there."""


def spoken(processes: Sequence[Process]) -> Cause | None:
    """The first exception with which the log of a process stops that Muster had to end, or that seemed to end well."""
    found = [
        cause
        for process in processes
        if (process.rank.expected or has_ended(process)) and (cause := last_words(process))
    ]
    definite = [cause for cause in found if cause.weight == DEFINITE and not _after_its_stop(cause)]
    return min(definite, key=lambda cause: cause.order) if definite else None


def _after_its_stop(cause: Cause) -> bool:
    """Whether it was raised while others were being ended, and so does not count (elsewhere-other-interface)."""
    stopped, raised = cause.process.log.stopped_at, cause.raised
    return stopped is not None and raised is not None and raised.begin >= stopped


def origin(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where several ranks fail alike because one of them had told the others: that one, with its own words."""
    first = causes[0]
    alike = [cause for cause in causes if likeness(cause) == likeness(first)]
    named = _blamed(first)
    if named and (len(processes) > 1 or first.rank.launcher_rank is not None):
        number = int(named["rank"] or named["on"] or named["only"])
        accused = next((item for item in processes if item.rank.rank == number), None)
        if accused is None and number in started_by(first.rank):
            # Its launcher does not report it.
            accused = replace(first.process, rank=replace(first.rank, rank=number))
        # After its own number a rank repeats what it heard of another.
        before = first.headline[: named.start()] if number != first.rank.rank and _names_itself(first) else ""
        said_so = named["rank"] is None or _TROUBLE.search(named["said"] + before) or _FAILED.search(named[0])
        itself = accused is not None and accused.rank.rank == first.rank.rank
        if accused is not None and said_so and not itself:
            own = next((cause for cause in causes if cause.rank.rank == accused.rank.rank), None)
            own = own or _own_words(accused)
            if own is None and _is_missed(first):
                # It is reported as missing, not as failed: where it was tells more.
                return None
            # Workers may be those of a data loader, which have their own numbers.
            if own or "ank" in named[0] or first.raised is None or first.process.shared:
                return own or replace(first, process=accused, sure=False)
    if (quoted := _quoted_from(first, processes)) is not None:
        return quoted
    if len(alike) < len(causes):
        return None
    # mpirun reports a rank again that has its own log.
    alike = list({cause.rank.rank: cause for cause in reversed(alike)}.values())
    if len(alike) < 2:
        return None
    alone = _only_once([cause.process for cause in alike])
    earlier = Counter(cause.earlier.line for cause in alike if cause.earlier is not None)
    troubled = []
    for cause in alike:
        before = cause.earlier.line if cause.earlier is not None else ""
        if line := before if earlier[before] == 1 else alone.get(cause.rank.rank, ""):
            troubled.append((cause, line))
    if len(troubled) != 1:
        return None
    cause, line = troubled[0]
    if cause.earlier is not None and cause.earlier.line == line:
        told = cause_of(Process(replace(cause.rank, exit_code=1), _up_to(cause)))
        return replace(told, process=cause.process, sure=False)
    line = with_exception(cause.process.log, line)
    return replace(cause, code="exception", headline=f"{line} ({cause.headline})", sure=False)


def with_exception(log: Log, line: str) -> str:
    """A line of a log, with the exception that was logged below it."""
    below = next(
        (raised for raised in log.raised if raised.begin and log.lines[raised.begin - 1].strip() == line), None
    )
    return f"{line}: {below.line}" if below is not None and below.line else line


def _blamed(first: Cause) -> re.Match[str] | None:
    """The rank that a message names, which may begin with the number of the rank that prints it."""
    named = _BLAMED.search(first.headline)
    if named and _names_itself(first):
        return _BLAMED.search(first.headline, named.start("said")) or named
    return named


def _names_itself(first: Cause) -> bool:
    named = _BLAMED.search(first.headline)
    return named is not None and named["rank"] is not None and int(named["rank"]) == first.rank.rank


def _is_missed(first: Cause) -> bool:
    """Whether a rank's words about another say that it waited for it."""
    complains = first.finding is not None and first.finding.rule.victim
    return complains and bool(_MISSED.search(first.headline)) and not _FAILED.search(first.headline)


def _quoted_from(first: Cause, processes: Sequence[Process]) -> Cause | None:
    """Where a rank leaves with another's exception in its last words: the only other one whose log stops with it."""
    if first.code != "exit_code" or first.raised is not None or "E" not in first.headline:
        return None
    others = [_own_words(process) for process in processes if process.rank.expected and process is not first.process]
    told = [cause for cause in others if cause is not None and cause.raised and _quotes(first.headline, cause.raised)]
    return told[0] if len(told) == 1 else None


def _quotes(headline: str, raised: Raised) -> bool:
    kind = raised.kind.rpartition(".")[2]
    return (
        len(kind) > len("Error") and kind in headline and (not raised.said or raised.said.strip("'\"")[:40] in headline)
    )


def _own_words(accused: Process) -> Cause | None:
    """What a rank that others name had raised, whether or not it went on."""
    said = last_words(accused)
    return replace(said, sure=False) if said is not None and said.weight == DEFINITE else None


def hinted(first: Cause, processes: Sequence[Process]) -> Cause | None:
    """Where the rank that failed first prints nothing about it: the only one whose log has an error."""
    if first.code != "exit_code" or len(processes) < 2:
        return None
    # What several print is what they were told.
    told = sum(first.headline in process.log.last_words(3) for process in processes) > 1
    said = spoken(processes)
    if _TROUBLE.search(first.headline) and not told and not (said and _MISSED.search(first.headline)):
        return None
    if said:
        return replace(said, sure=False)
    if first.signal is None and sum(process.rank.failed for process in processes) < 2:
        return None
    alone = _only_once([process for process in processes if complaint(process) is None])
    if len(alone) != 1:
        return None
    number, line = next(iter(alone.items()))
    process = next(item for item in processes if item.rank.rank == number)
    also = f" ({first.headline})" if first.headline and first.headline != line else ""
    code = "exception" if NAMES_EXCEPTION.search(line) else first.code
    return replace(first, process=process, headline=f"{line}{also}", code=code, sure=False)


def culprit(
    processes: Sequence[Process], complaints: Mapping[int, str], surely_peers: bool, failed: Sequence[Raised] = ()
) -> Blame:
    """Every failure is a lost peer: find the process that the others lost.

    `complaints`: by rank. Without `surely_peers` the lost connection may have been to something other than a rank.
    """
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    stayed = [process for process in essential if not process.rank.failed and not has_ended(process)]
    if (absent := _absent_at_roll_call(essential, complaints)) is not None:
        return absent
    named = _named(essential, complaints)
    left = [process for process in essential if has_ended(process) and process.rank.rank not in complaints]
    finished = left if left and _have_finished(left, essential, complaints) else []
    left = left if not finished else []
    left = _gone_before(left, essential, complaints)
    if left and (surely_peers or stayed or len(complaints) > 1 or named in left):
        return _left_by(left, named, essential)
    at_their_side = named is not None and waiting.is_where_they_failed(named, waiting.given_up(failed))
    if named is not None and not waiting.waits(named) and not at_their_side and named.rank.rank not in complaints:
        why = waiting.not_there(named) if waiting.doing(named) else "did not answer the others, who name it"
        return Blame(named, why, where=waiting.place_of(named))
    if any("mismatch" in line.lower() for line in complaints.values()) and (odd := _voted(essential, complaints)):
        at = waiting.failed_at(odd.log.raised[-1]) if odd.log.raised else None
        return Blame(odd, "called another collective, or with another shape, than the others", where=at, sure=False)
    silent = [item for item in essential if not item.rank.failed and item.rank.rank not in complaints]
    silent = [item for item in silent if item not in finished]
    blame = odd_one_out(silent, len(essential), failed) if silent else _none_silent(essential)
    if blame.process is not None and not surely_peers and _goes_on(blame.process, essential, complaints):
        blame = _none_silent(essential)
    shown = blame.process is not None and (
        waiting.stack_of(blame.process) is not None or waiting.is_frozen(blame.process)
    )
    if blame.process is None and surely_peers and (other := _elsewhere(essential, complaints)) is not None:
        return other
    if blame.process is None and len(silent) == 1 and _hangs(silent[0], essential, complaints):
        # It waits as well, but it alone would wait for ever.
        return Blame(silent[0], waiting.not_there(silent[0]), where=waiting.place_of(silent[0]), sure=False)
    return blame if surely_peers or shown else _none_silent(essential)


def _absent_at_roll_call(essential: Sequence[Process], complaints: Mapping[int, str]) -> Blame | None:
    """Whom torch's monitored barrier misses: there one rank asks all the others, and says who did not answer."""
    called = next((found[1] for line in complaints.values() if (found := NAMES_THE_ABSENT.search(line))), "")
    numbers = {int(number) for number in re.findall(r"\d+", called)}
    absent = [process for process in essential if process.rank.rank in numbers]
    if not any(number in complaints for number in numbers) or len(absent) > len(essential) // 2:
        # A rank that came too late for it complains later, like everyone; for others there are other signs.
        return None
    of = tuple(process.rank.rank for process in absent) if len(absent) > 1 else ()
    return Blame(absent[0], "did not come to the barrier", where=waiting.place_of(absent[0]), all_of=of)


def has_left(processes: Sequence[Process]) -> Blame | None:
    """One that had ended well, while all that are left wait for others."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    left = [process for process in essential if has_ended(process)]
    running = [process for process in essential if not has_ended(process)]
    if not left or not running:
        return None
    at_one_line = len(left) < len(running) and waiting.in_one_place(running)
    if not at_one_line and not all(waiting.waits(item) or waiting.seems_to_wait(item) for item in running):
        return None
    if len(running) == 1 < len(left) and _have_finished(left, essential, {}):
        # All the others had done all of their work.
        return Blame(running[0], waiting.not_there(running[0]), where=waiting.place_of(running[0]), sure=False)
    return _left_by(left, None, essential)


def still_going(processes: Sequence[Process]) -> Blame | None:
    """Where most had ended well by themselves: those that had not."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    running = [process for process in essential if process.rank.expected]
    ended = [process for process in essential if has_ended(process)]
    if not running or len(running) > len(ended) or len(running) + len(ended) < len(essential):
        return None
    first = min(running, key=lambda process: process.rank.rank)
    numbers = tuple(sorted(process.rank.rank for process in running)) if len(running) > 1 else ()
    said = waiting.doing(first) if not numbers else ""
    why = f"had not ended, as the others had{f': it {said}' if said else ''}"
    return Blame(first, why, where=waiting.place_of(first), sure=False, all_of=numbers)


def all_wait(running: Sequence[Process]) -> Blame | None:
    """Where all that are left wait for others: the only one that does so in another call than the rest."""
    return _elsewhere(running, {}) if len(running) > 2 else None


def odd_one_out(silent: Sequence[Process], num_ranks: int, failed: Sequence[Raised] = ()) -> Blame:
    """Of those that were still running, the one that did not wait for the others."""
    places = waiting.given_up(failed)
    candidates = [item for item in silent if not waiting.waits(item) and not waiting.is_where_they_failed(item, places)]
    odd = waiting.at_an_odd_place(candidates) if len(candidates) > 1 else []
    if len(odd) == 1 and not (
        waiting.listens(odd[0])
        and not any(map(waiting.seems_to_wait, [item for item in candidates if item is not odd[0]]))
    ):
        candidates = odd
    shown = [process for process in candidates if is_away(process)]
    if len(shown) == 1 and not any(map(waiting.is_frozen, candidates)):
        # For the others it is only unknown where they were (apart-mpi-ring-sleeps).
        candidates = shown
    if len(candidates) > 1:
        candidates = [process for process in candidates if not waiting.seems_to_wait(process)] or candidates
        candidates = waiting.at_an_odd_place(candidates)
    if len(candidates) == 1 and num_ranks > 1:
        return Blame(candidates[0], waiting.not_there(candidates[0]), where=waiting.place_of(candidates[0]))
    numbers = tuple(sorted(process.rank.rank for process in candidates or silent))
    if candidates and len(candidates) <= num_ranks / 2 and waiting.in_one_place(candidates):
        first = min(candidates, key=lambda process: process.rank.rank)
        where = waiting.doing(first).replace("was ", "were ", 1)
        return Blame(first, f"did not answer the others: they {where}", where=waiting.place_of(first), all_of=numbers)
    return Blame(None, "", numbers, sure=False)


def has_ended(process: Process) -> bool:
    """It ended well, and no other rank had told it to."""
    return process.rank.succeeded and not process.rank.expected


def _left_by(left: Sequence[Process], named: Process | None, essential: Sequence[Process]) -> Blame:
    steps = differences.steps(essential)
    first = named if named in left else min(left, key=lambda process: process.rank.ended_at or 0.0)
    unusual = [process for process in left if any(map(differences.is_unusual, process.log.last_words(1)))]
    if named not in left and len(unusual) == 1 and not steps:
        first = unusual[0]
    if named not in left and all(process.rank.rank in steps for process in left):
        # The others had done all of their work.
        first = min(left, key=lambda process: (steps[process.rank.rank], process.rank.ended_at or 0.0))
    return Blame(first, LEFT)


def _gone_before(left: Sequence[Process], essential: Sequence[Process], complaints: Mapping[int, str]) -> list[Process]:
    """Without those that ended when a rank gave up waiting, while another still runs that does not wait as it did.

    Waiting takes its time: they ended because that one did (elsewhere-port-above).
    """
    ends = [process.rank.ended_at for process in essential if process.rank.failed and process.rank.ended_at]
    running = [process for process in essential if process.rank.expected and process.rank.rank not in complaints]
    waited = any(_LATE.search(line) for line in complaints.values())
    if not ends or not waited or len(running) != 1 or waiting.stack_of(running[0]) is None:
        return list(left)
    return [process for process in left if (process.rank.ended_at or 0.0) < min(ends) - _AT_ONCE_S]


def _hangs(process: Process, essential: Sequence[Process], complaints: Mapping[int, str]) -> bool:
    """Whether it waits by its own means, and no further on than those that gave up."""
    shown = waiting.stack_of(process) is not None and not waiting.waits(process)
    return shown and not _goes_on(process, essential, complaints)


def _goes_on(process: Process, essential: Sequence[Process], complaints: Mapping[int, str]) -> bool:
    """Whether a rank came further than all that complain: they do not need each other."""
    steps = differences.steps(essential)
    theirs = [steps[number] for number in complaints if number in steps]
    return bool(theirs) and steps.get(process.rank.rank, 0) > max(theirs)


def _have_finished(left: Sequence[Process], essential: Sequence[Process], complaints: Mapping[int, str]) -> bool:
    """Whether those that ended well had come further than all the others, of which one hangs without complaint."""
    steps = differences.steps(essential)
    others = [process for process in essential if not has_ended(process)]
    hangs = any(not process.rank.failed and process.rank.rank not in complaints for process in others)
    if not hangs or any(process.rank.rank not in steps for process in (*left, *others)):
        return False
    return min(steps[process.rank.rank] for process in left) > max(steps[process.rank.rank] for process in others)


def is_away(process: Process) -> bool:
    """It is busy with something else, although others wait for it."""
    return (
        process.rank.expected
        and waiting.stack_of(process) is not None
        and not waiting.waits(process)
        and not waiting.seems_to_wait(process)
    )


def _elsewhere(essential: Sequence[Process], complaints: Mapping[int, str]) -> Blame | None:
    """Where all complain or wait: the only one that did so in another call than all the rest."""
    at = {process.rank.rank: waiting.calls_of(process) for process in essential}
    if one := waiting.without_counterpart(essential):
        numbers = tuple(sorted(process.rank.rank for process in one))
        first = min(one, key=lambda process: process.rank.rank)
        why = f"still waited for a message, while the others had gone on: {waiting.at_call(first)}"
        return Blame(first, why, where=waiting.call_of(first), sure=False, all_of=numbers if len(one) > 1 else ())
    counted = Counter(at.values())
    all_wait = all(waiting.waits(process) or process.rank.rank in complaints for process in essential)
    if len(essential) < 3 or len(counted) < 2 or () in counted or not all_wait:
        return None
    (common, count), (_, single), *more = counted.most_common()
    if single != 1 or count < 2:
        return None
    away = [process for process in essential if at[process.rank.rank] != common]
    if more:
        # Those further on have passed the call in which most are; one that has not reached it holds them up.
        away = [process for process in away if waiting.is_before(at[process.rank.rank], common)]
    if len(away) != 1:
        return None
    odd = away[0]
    where = waiting.place_of(odd) or waiting.failed_at(odd.log.raised[-1])
    assert where is not None
    place = f"{waiting.short(where.file)} line {where.line}{f': `{where.source[:80]}`' if where.source else ''}"
    return Blame(odd, f"was waiting in another call ({place}) than all the others", where=where, sure=False)


def _none_silent(essential: Sequence[Process]) -> Blame:
    return Blame(None, "", tuple(sorted(process.rank.rank for process in essential)), sure=False)


def _named(essential: Sequence[Process], complaints: Mapping[int, str]) -> Process | None:
    """The rank that most complaints name, or whose key they miss in the store."""
    counted = Counter(number for line in complaints.values() for number in _numbers(_NAMED, line))
    missed = Counter(number for line in complaints.values() for number in _numbers(_KEY, line))
    for number, _ in [*counted.most_common(), *missed.most_common()]:
        process = next((process for process in essential if process.rank.rank == number), None)
        # Rank 0 serves the store and waits for all before it enters itself, unless a launcher serves it.
        waits = number not in counted and number == 0 and process is not None and process.rank.launcher_rank is None
        if process is not None and not waits and number not in complaints:
            return process
    return _accused(essential, complaints)


def _accused(essential: Sequence[Process], complaints: Mapping[int, str]) -> Process | None:
    """The only rank that others complain about and that complains about nobody itself."""
    told = {number for own, line in complaints.items() for number in _numbers(_MENTIONED, line) if number != own}
    accused = [process for process in essential if process.rank.rank in told and process.rank.rank not in complaints]
    return accused[0] if len(accused) == 1 else None


def _voted(essential: Sequence[Process], complaints: Mapping[int, str]) -> Process | None:
    """The rank that all others complain about, whatever it says of them."""
    votes = Counter(
        number for own, line in complaints.items() for number in set(_numbers(_MENTIONED, line)) if number != own
    )
    for number, count in votes.most_common(1):
        if count >= 2 and count == sum(own != number for own in complaints):
            return next((process for process in essential if process.rank.rank == number), None)
    return None


def _numbers(pattern: re.Pattern[str], line: str) -> list[int]:
    return [int(next(group for group in match.groups() if group is not None)) for match in pattern.finditer(line)]


def likeness(cause: Cause) -> tuple[str, str]:
    """Equal for causes that differ in numbers alone."""
    return cause.code, without_numbers(cause.headline)


def without_numbers(text: str) -> str:
    """A line as others may have printed it with their own numbers."""
    return re.sub(r"\d+", "#", text)


def _only_once(processes: Sequence[Process]) -> dict[int, str]:
    """By rank, its words about a failure that no other rank printed."""
    ranks = [process for process in processes if process.rank.role != "launcher"]
    count = _LAST_WORDS if len(ranks) <= _MANY else _FEW_WORDS
    words = {process.rank.rank: process.log.last_words(count) for process in ranks}
    said_by = Counter(line for lines in words.values() for line in {without_numbers(line) for line in lines})
    found = {}
    for number, lines in words.items():
        own = [line for line in lines if said_by[without_numbers(line)] == 1 and _TROUBLE.search(line)]
        if own:
            found[number] = own[-1].strip()
    return found


def _up_to(cause: Cause) -> Log:
    """The log up to the end of an earlier exception."""
    assert cause.earlier is not None
    log = cause.process.log
    kept = tuple(raised for raised in log.raised if raised.end <= cause.earlier.end)
    return replace(log, lines=log.lines[: cause.earlier.end], raised=kept)
