"""Ranks that others waited for: found by what the others say of them, or by what they alone print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from muster.diagnosis import differences, meeting, waiting
from muster.diagnosis.causes import RENDEZVOUS, Cause, by_exception, complaint, is_told_to_stop, is_victim, named_in
from muster.diagnosis.gangs import LEFT, NAMES_EXCEPTION, Blame, has_ended, is_away
from muster.diagnosis.launchers import Process
from muster.diagnosis.meant import MISSING, WAITED, bare_numbers, speaks_for_itself
from muster.diagnosis.words import is_handled

_PEER = re.compile(
    r"(?i)\b(?P<noun>rank|worker|peer|actor|learner|replica|executor|node|host|machine|process|proc|task|member|client"
    r"|trainer|participant|party|partie|server|stage|agent|runner|follower|leader|device|partner|neighbou?r|child|site"
    r"|instance|sampler|collector|evaluator|player|consumer|producer|reader|writer|mapper|reducer|solver|domain|tile"
    r"|expert|explorer|simulator|env)(?:e?s)?\b[\"'\s:=#]{0,4}[\[({<]?\s?(?P<list>\d{1,6}(?:, ?\d{1,6}){0,64})\b"
)
_LACKS = re.compile(
    r"(?i)\b(?:no|not|nothing|never|none|missing|lost|without|gone|silent|late|dead|absent|unresponsive|unreachable"
    r"|time(?:d[ -]?)?-?out|stopped|stale|overdue"
    r"|only|wait(?:ed|ing)|g[ia]v(?:e|ing) up|vanished|disappeared|left|closed|hung"
    r"|too few|not enough|disconnected|dropped"
    r"|stuck|unfinished|outstanding|quiet|nobody|expired|ran out|unanswered|incomplete)\b|n't\b"
)
_SENT = re.compile(
    r"(?i)\b(?:heart ?beats?|messages?|repl(?:y|ies)|answers?|responses?|signs?|acks?|updates?|gradients?|results?"
    r"|news)\b"
)
_FROM = re.compile(r"\b(?:of|from|by|for|to) #?(\d{1,6})\b(?! ?(?:s|ms|sec\w*|min\w*|of|times)\b|[./:%]\d?)")
_LAGS = re.compile(r"(?i)\b(?:quiet|unfinished|outstanding|ran out|expired|unanswered|stale)\b")
_FIRST_RANK = re.compile(r"(?i)\b(?:leader|chief|master|coordinator|head(?: node)?|primary|driver|root)\b")
"""Names for the first rank where it leads the others (again-lease)."""
_SHORT = re.compile(
    r"(?i)\bexpected \d+\b.{0,60}\b(?:got|have|received|saw|found|only)\b|\b(?:got|have|received|saw|only) \d+\b.{0,40}"
    r"\b(?:of|expected|instead)\b|\b\d+ ?(?:of|/|out of) ?\d+\b|\b(?:incomplete|not all|missing)\b"
)
_OF_OTHERS = re.compile(
    r"(?i)\b(?:every(?:body|one|thing)|all|others?|nobody|somebody|someone|workers?|peers?|ranks?|members?|clients?|nodes?|replicas?"
    r"|quorum|too few|enough|part(?:y|ies|icipants?|s|-?\d+)|reports?|answers?|trainers?|actors?|\d+ ?(?:/|of) ?\d+)\b"
)
_LOST = re.compile(
    r"(?i)\b(?:gone|lost|left|closed|hung up|vanished|disappeared|disconnected|dropped|went away|died)\b"
)
_FEWEST = 3
_LISTED = re.compile(r"[\[{]#?(\d{1,6})[\]}]")
_LAST_WORDS = 6
_QUOTED = re.compile(r"['\"]([^'\"]{1,300})['\"]")


def not_heard_of(causes: Sequence[Cause], processes: Sequence[Process]) -> Blame | None:
    """Where a rank leaves by itself because another did not answer: the one that did not answer."""
    first = causes[0]
    blame = missed(first, processes) if speaks_for_itself(first) else None
    if blame is None and speaks_for_itself(first):
        blame = uncounted(causes[:1], processes) if _SHORT.search(first.headline) else _not_listed(first, processes)
        blame = blame or _odd_among_others(first, causes, processes)
    return blame or unwritten(first, processes)


def _odd_among_others(first: Cause, causes: Sequence[Cause], processes: Sequence[Process]) -> Blame | None:
    """For a rank that leaves because another is missing that it does not name: the only other one that had left, that
    gave another value than the rest, or that printed something no other did.

    For apart-perl-client-leaves, apart-elects, apart-node-quorum, apart-bash-collector.
    """
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    # The first rank often prints on behalf of all.
    others = [process for process in essential if process is not first.process and process.rank.rank]
    said, own = first.headline, [cause for cause in causes[1:] if cause.weight < RENDEZVOUS]
    if own or len(others) < _FEWEST or not _OF_OTHERS.search(said) or not (_LACKS.search(said) or _SHORT.search(said)):
        return None
    left = [process for process in others if has_ended(process)]
    if len(left) == 1 and _LOST.search(said):
        return Blame(left[0], LEFT, sure=False)
    one = _with_another_value(others)
    return one or by_branch(others)


def _not_listed(first: Cause, processes: Sequence[Process]) -> Blame | None:
    """For a rank that leaves with a list of two or more others: the only one that is not in it (elsewhere-beacon)."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    others = {process.rank.rank for process in essential} - {first.rank.rank}
    for listed in differences.numbers_in_lists(first.headline):
        absent = others - listed
        if len(absent) == 1 and len(listed - {first.rank.rank}) > 1 and listed <= others | {first.rank.rank}:
            one = next(process for process in essential if process.rank.rank in absent)
            failed = one.rank.failed and complaint(one) is None
            why = LEFT if has_ended(one) else waiting.not_there(one)
            return None if failed else Blame(one, why, where=waiting.place_of(one), sure=False)
    return None


def missed(first: Cause, processes: Sequence[Process]) -> Blame | None:
    """For a rank that leaves because another did not answer: the one that it names, if that one was elsewhere."""
    if not _LACKS.search(first.headline):
        return None
    numbers = {
        (match["noun"].lower(), int(number))
        for match in _PEER.finditer(first.headline)
        for number in match["list"].replace(" ", "").split(",")
        if int(number) != first.rank.rank
    }
    if not numbers and _SENT.search(first.headline):
        # It says what did not come, and only the number of the rank that should have sent it.
        told = _FROM.findall(first.headline) or _LISTED.findall(first.headline)
        numbers = {("rank", int(number)) for number in told}
    missing = MISSING.search(first.headline)
    if not numbers and missing:
        numbers = {("rank", int(number)) for number in missing[1].split(",")}
    if not numbers and _FIRST_RANK.search(first.headline) and first.rank.rank:
        numbers = {("rank", 0)}
    if not numbers:
        # Whichever number may be a rank's, if just one of those ranks is elsewhere.
        return _only_absent(bare_numbers(first.headline) - {first.rank.rank}, processes, first.headline)
    accused = [process for process in processes if process is not first.process and _is_named(process, numbers)]
    absent = [process for process in accused if _is_absent(process, processes, first.headline)]
    if missing:
        # They are listed as missing: wherever they wait, it is not with the others.
        absent = [process for process in accused if not process.rank.failed and not waiting.waits(process)]
    if not absent or len(absent) < len(accused):
        return None
    one = min(absent, key=lambda process: process.rank.rank)
    why = LEFT if has_ended(one) else waiting.not_there(one)
    return Blame(one, why, where=waiting.place_of(one), sure=False)


def _only_absent(numbers: set[int], processes: Sequence[Process], said: str) -> Blame | None:
    """Of ranks that a number may mean, the only one that left or is doing something else.

    For further-datagrams-stop, further-beat-files, further-other-file-name.
    """
    absent = [item for item in processes if item.rank.rank in numbers and _is_absent(item, processes, said)]
    if len(absent) != 1:
        return None
    why = LEFT if has_ended(absent[0]) else waiting.not_there(absent[0])
    return Blame(absent[0], why, where=waiting.place_of(absent[0]), sure=False)


def _is_absent(process: Process, processes: Sequence[Process], said: str) -> bool:
    """Whether a rank had left or is doing something else. Where none shows what it does, words about waiting decide."""
    if has_ended(process) or is_away(process):
        return True
    unknown = not any(waiting.stack_of(item) for item in processes)
    lost = not process.rank.failed or complaint(process) is not None
    return unknown and lost and bool(WAITED.search(said) or _LAGS.search(said))


def unwritten(first: Cause, processes: Sequence[Process]) -> Blame | None:
    """For a rank that misses a file with another rank's number in its name: that rank, if it never wrote it."""
    if "No such file" not in first.headline or (path := _QUOTED.search(first.headline)) is None:
        return None
    numbers = {int(number) for number in re.findall(r"\d{1,6}", path[1].rpartition("/")[2])}
    if first.rank.rank in numbers:
        return None
    return _only_absent(numbers, processes, first.headline)


def _is_named(process: Process, numbers: set[tuple[str, int]]) -> bool:
    node = re.search(r"\d+$", process.rank.node or "")
    for noun, number in numbers:
        if noun.startswith(("node", "host", "machine")):
            if node and int(node[0]) == number:
                return True
        elif process.rank.rank == number:
            return True
    return False


def met_elsewhere(processes: Sequence[Process], given_port: int | None) -> Blame | None:
    """Of ranks that did not find each other: those that looked for the others at a different address."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    odd = meeting.elsewhere(essential, given_port)
    if not odd or len(odd) > len(essential) / 2:
        return None
    first = min(odd, key=lambda process: process.rank.rank)
    numbers = tuple(sorted(process.rank.rank for process in odd)) if len(odd) > 1 else ()
    said = meeting.own_words(first, [process for process in essential if process not in odd])
    told = f" (it said: {said})" if said else ""
    port = f" (MASTER_PORT is {given_port})" if given_port else ""
    where = f"where it says `{said}`" if said else "in its settings"
    hint = (
        f"Let rank {first.rank.rank} look for the others at MASTER_ADDR and MASTER_PORT as Muster sets them{port}: "
        f"{where}."
    )
    return Blame(first, f"did not come to where the others met{told}", sure=False, all_of=numbers, next=hint)


def differs(processes: Sequence[Process]) -> Blame | None:
    """Where nothing else tells ranks apart: the only one that prints something else about itself than the others."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    one = meeting.told_otherwise(essential)
    if one is None:
        return None
    said = meeting.own_words(one, essential)
    hint = f"See why rank {one.rank.rank} differs from all the others, which did not say `{said}`."
    return Blame(one, f"did not start as the others did (it said: {said})", sure=False, next=hint)


def by_words(processes: Sequence[Process], blame: Blame) -> Blame:
    """The rank to blame by what ranks print about themselves, where stacks are not conclusive."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    found = by_value(essential, blame)
    if found.process is not None:
        return found
    return differs(essential) or by_progress(essential) or by_branch(essential) or blame


def by_value(processes: Sequence[Process], blame: Blame) -> Blame:
    """The rank to blame by a value that it alone printed."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    return _with_another_value(essential) or blame


def waits_with_another_value(running: Sequence[Process]) -> Blame | None:
    """Where all remaining ranks wait: the only one that had printed another value than the rest."""
    if not all(waiting.waits(process) or waiting.seems_to_wait(process) for process in running):
        return None
    return _with_another_value(running)


def _with_another_value(processes: Sequence[Process]) -> Blame | None:
    found = differences.value(processes)
    if found is None:
        return None
    number = found.process.rank.rank
    hint = f"See why rank {number} says `{found.line}`, where another says `{found.theirs}`."
    why = f"did not say the same as the others (`{found.line}`, another: `{found.theirs}`)"
    return Blame(found.process, why, sure=False, next=hint)


def by_branch(processes: Sequence[Process]) -> Blame | None:
    """The only rank that printed something of a kind that no other did."""
    found = differences.branch(processes) if len(processes) > 1 else None
    if found is None:
        return None
    one, said = found
    at = waiting.place_of(one) or (waiting.failed_at(one.log.raised[-1]) if one.log.raised else None)
    return Blame(one, f"did not do what the others did (it alone said: {said})", where=at, sure=False)


def said_alone(process: Process, processes: Sequence[Process]) -> str:
    """The last line that only this rank printed before it ended; a log record where there is nothing else."""
    for records in differences.RECORDS:
        if lines := differences.own_lines(processes, records).get(process.rank.rank, []):
            return lines[-1].strip()
    return ""


def needed_more(processes: Sequence[Process]) -> Blame | None:
    """Where one rank alone still needed the others, which had all ended well: it, if it had given another value.

    For r-gang-allreduce-sizes-differ.
    """
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    staying = [process for process in essential if not has_ended(process)]
    found = _with_another_value(essential) if len(staying) == 1 else None
    return found if found is not None and found.process is staying[0] else None


def stays_behind(processes: Sequence[Process]) -> Blame | None:
    """Where all the others had done their work, and said so in the same words: the only one that still waits.

    It asks for something that nobody else has to do. Under MPI a rank that shows no stack beside one that does is on
    its way out. For s-barrier-only-under-if, whom-three-finished, whom-mpi-one-more-barrier.
    """
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    staying = [process for process in essential if not has_ended(process) and waiting.stack_of(process) is not None]
    done = [process for process in essential if process not in staying]
    last = {_kind(next(iter(process.log.last_words(1)), "")) for process in done}
    if len(staying) != 1 or len(done) < 2 or len(last) != 1 or any(process.log.stacks for process in done):
        return None
    one = staying[0]
    # It is not known who printed the lines in a launcher's log.
    nobodys = "" if all(process.rank.launcher_rank is None for process in done) else None
    if last & {nobodys, *map(_kind, one.log.last_words(_LAST_WORDS))}:
        return None
    why = f"had not ended, as the others had: it {waiting.doing(one)}"
    return Blame(one, why, where=waiting.place_of(one), sure=False)


def _kind(line: str) -> str:
    return re.sub(r"\d+", "#", line.strip())


def uncounted(causes: Sequence[Cause], processes: Sequence[Process]) -> Blame | None:
    """Where ranks that gave up waiting had counted who came, or which ranks they asked: the only one that did not come.

    For r-own-asyncio-wait-for-peer, values-results-one-by-one, values-checked-in-list, values-asks-in-turn.
    """
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    numbers = {process.rank.rank for process in essential}
    failed = {cause.rank.rank for cause in causes}
    absent: set[int] = set()
    for cause in causes:
        for came in differences.came(cause.process, numbers):
            absent |= numbers - came - {cause.rank.rank}
    absent = absent or {number for cause in causes for number in differences.not_counted(cause.process, numbers)}
    absent = absent or {number for cause in causes for number in differences.asked_last(cause.process)}
    missing = [process for process in essential if process.rank.rank in absent]
    if len(missing) != 1 or missing[0].rank.rank in failed:
        return None
    why = LEFT if has_ended(missing[0]) else waiting.not_there(missing[0])
    return Blame(missing[0], why, where=waiting.place_of(missing[0]), sure=False)


def by_progress(processes: Sequence[Process]) -> Blame | None:
    """Where stacks are not conclusive: the only rank that is behind all the others, or whose last words differ."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    if len(essential) < 3 or any(waiting.stack_of(process) for process in essential):
        return None
    steps = differences.steps(essential)
    if len(steps) == len(essential):
        behind = [process for process in essential if steps[process.rank.rank] == min(steps.values())]
        if len(behind) == 1:
            how_far = f"it had come to {steps[behind[0].rank.rank]}, all the others further"
            return Blame(behind[0], f"did not keep up: {how_far}", sure=False)
    last = {process.rank.rank: re.sub(r"\d+", "#", next(iter(process.log.last_words(1)), "")) for process in essential}
    counted = Counter(last.values())
    if len(counted) != 2 or min(counted.values()) != 1 or max(counted.values()) < 2:
        return None
    odd = next(process for process in essential if counted[last[process.rank.rank]] == 1)
    return Blame(odd, "did not get to where all the others were", sure=False) if last[odd.rank.rank] else None


def own_trouble(process: Process) -> Cause | None:
    """An exception in the log of a rank that others waited for: it had gone on, but not with them."""
    for raised in reversed(process.log.raised):
        if raised.line and raised.setting != "ignored" and not is_victim(raised) and not is_told_to_stop(raised):
            return by_exception(process, raised)
    return said_trouble(process)


def said_trouble(process: Process) -> Cause | None:
    """An exception that a rank does not show, but names in a log record."""
    words = process.log.last_words(_LAST_WORDS)
    at = next((i for i in range(len(words) - 1, -1, -1) if NAMES_EXCEPTION.search(words[i])), None)
    if at is None or any(map(is_handled, words[at:])):
        return None
    return named_in(process, words[at].strip())
