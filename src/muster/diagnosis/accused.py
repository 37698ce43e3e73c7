"""Ranks to blame by what others say of them, or by what only they say of themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from muster.diagnosis import differences, meeting, progress, waiting
from muster.diagnosis.causes import DEFINITE, Cause, by_exception, is_told_to_stop, is_victim, last_words, named_in
from muster.diagnosis.gangs import LEFT, Blame, has_ended, is_away, likeness, not_there
from muster.diagnosis.launchers import Process
from muster.diagnosis.table.machines import TOLD
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
    r"|stuck)\b|n't\b"
)
_NAMES_EXCEPTION = re.compile(r"\b(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{1,60}(?:Error|Exception)\b ?[(:]")
_SENT = re.compile(
    r"(?i)\b(?:heart ?beats?|messages?|repl(?:y|ies)|answers?|responses?|signs?|acks?|updates?|gradients?|results?"
    r"|news)\b"
)
_FROM = re.compile(r"\b(?:of|from|by|for|to) #?(\d{1,6})\b(?! ?(?:s|ms|sec\w*|min\w*|of|times)\b|[./:%]\d?)")
_MISSING = re.compile(
    r"(?i)\b(?:missing|absent|pending|overdue|not (?:there|here|ready|done|seen)|without)\b\W{0,4}[\[{(]"
    r"(\d{1,6}(?:, ?\d{1,6}){0,64})[\]})]"
)
_SENT_BADLY = re.compile(
    r"(?i)\b(?:gradient|update|result|message|part|batch|tensor|value|state|weights|parameters|digest|checksum|loss|data"
    r"|reply|answer|shard|packet|frame|header|record)s? (?:of|from|by|sent by)"
    r" (?:rank|worker|peer|client|node|process|actor) ?(\d{1,6})\b.{0,40}"
    r"\b(?:out of range|nan|inf|corrupt\w*|invalid|bad|wrong|mismatch\w*|unexpected|malformed|garbage"
    r"|truncated|too (?:large|small|short|long|old|new)|differs?|does not|is not)\b"
)
_LISTED = re.compile(r"[\[{]#?(\d{1,6})[\]}]")
_RANK = re.compile(r"(?i)\brank (\d{1,6})\b")
_LAST_WORDS = 6
_QUOTED = re.compile(r"['\"]([^'\"]{1,300})['\"]")


def missed(first: Cause, processes: Sequence[Process]) -> Blame | None:
    """Of a rank that leaves because somebody did not answer: the one that it names, if that one is not at its side."""
    if not _LACKS.search(first.headline):
        return None
    numbers = {
        (match["noun"].lower(), int(number))
        for match in _PEER.finditer(first.headline)
        for number in match["list"].replace(" ", "").split(",")
        if int(number) != first.rank.rank
    }
    if not numbers and _SENT.search(first.headline):
        # It says what did not come, and only the number of the one that it should have come from.
        told = _FROM.findall(first.headline) or _LISTED.findall(first.headline)
        numbers = {("rank", int(number)) for number in told}
    missing = _MISSING.search(first.headline)
    if not numbers and missing:
        numbers = {("rank", int(number)) for number in missing[1].split(",")}
    accused = [process for process in processes if process is not first.process and _is_named(process, numbers)]
    absent = [process for process in accused if has_ended(process) or is_away(process)]
    if missing:
        # They are listed as missing: wherever they wait, it is not with the others.
        absent = [process for process in accused if not process.rank.failed and not waiting.waits(process)]
    if not absent or len(absent) < len(accused):
        return None
    one = min(absent, key=lambda process: process.rank.rank)
    why = LEFT if has_ended(one) else not_there(one)
    return Blame(one, why, where=waiting.place_of(one), sure=False)


def unwritten(first: Cause, processes: Sequence[Process]) -> Blame | None:
    """Of a rank that misses a file with another rank's number in its name: that rank, if it never got to write it."""
    if "No such file" not in first.headline or (path := _QUOTED.search(first.headline)) is None:
        return None
    numbers = {int(number) for number in re.findall(r"\d{1,6}", path[1].rpartition("/")[2])}
    if first.rank.rank in numbers:
        return None
    absent = [item for item in processes if item.rank.rank in numbers and (has_ended(item) or is_away(item))]
    if len(absent) != 1:
        return None
    why = LEFT if has_ended(absent[0]) else not_there(absent[0])
    return Blame(absent[0], why, where=waiting.place_of(absent[0]), sure=False)


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
    """Of ranks that did not find each other: those that looked for the others at another place."""
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
    """Where nothing else tells ranks apart: the only one that says something else of itself than all the others."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    one = meeting.told_otherwise(essential)
    if one is None:
        return None
    said = meeting.own_words(one, essential)
    hint = f"See why rank {one.rank.rank} differs from all the others, which did not say `{said}`."
    return Blame(one, f"did not start as the others did (it said: {said})", sure=False, next=hint)


def by_words(processes: Sequence[Process], blame: Blame) -> Blame:
    """Who is to blame by what ranks say of themselves, where stacks do not tell for certain."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    found = by_value(essential, blame)
    if found.process is not None:
        return found
    return differs(essential) or by_progress(essential) or _by_branch(essential) or blame


def by_value(processes: Sequence[Process], blame: Blame) -> Blame:
    """Who is to blame by a value that it alone gave."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    return _with_another_value(essential) or blame


def waits_with_another_value(running: Sequence[Process]) -> Blame | None:
    """Where all that are left wait: the only one that had given another value than the rest."""
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


def _by_branch(processes: Sequence[Process]) -> Blame | None:
    found = differences.branch(processes) if len(processes) > 1 else None
    if found is None:
        return None
    one, said = found
    at = waiting.place_of(one) or (waiting.failed_at(one.log.raised[-1]) if one.log.raised else None)
    return Blame(one, f"did not do what the others did (it alone said: {said})", where=at, sure=False)


def said_alone(process: Process, processes: Sequence[Process]) -> str:
    """The last thing that only this rank said before it ended."""
    lines = differences.own_lines(processes).get(process.rank.rank, [])
    return lines[-1].strip() if lines else ""


def odd_value(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where ranks fail alike because they do not agree: the only one that names another value than all the rest."""
    stopped = [cause for process in processes if process.rank.expected and (cause := last_words(process))]
    alike = [cause for cause in (*causes, *stopped) if likeness(cause) == likeness(causes[0])]
    values = {cause.rank.rank: cause.headline for cause in alike}
    if len(set(values.values())) > 2:
        values = {cause.rank.rank: _valued(cause) for cause in alike}
    counted = Counter(values.values())
    if len(causes) != sum(cause in causes for cause in alike) or len(counted) != 2 or len(alike) < 3:
        return None
    (_, count), (single, once) = counted.most_common()
    if once != 1 or count < 2:
        return None
    odd = next(cause for cause in alike if values[cause.rank.rank] == single)
    return replace(odd, sure=False)


def needed_more(processes: Sequence[Process]) -> Blame | None:
    """Where one rank alone still needed the others, which had all ended well: it, if it had given another value.

    For r-gang-allreduce-sizes-differ.
    """
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    staying = [process for process in essential if not has_ended(process)]
    found = _with_another_value(essential) if len(staying) == 1 else None
    return found if found is not None and found.process is staying[0] else None


def disagrees(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where ranks leave because they do not agree: the only one that had given another value than all the rest.

    For r-own-config-hash-differs, values-digest, values-names.
    """
    if not differences.is_disagreement(causes[0].headline) or any(likeness(c) != likeness(causes[0]) for c in causes):
        return None
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    if (found := differences.value(essential)) is not None:
        own = next((cause for cause in causes if cause.process is found.process), causes[0])
        headline = f"{own.headline}; it said `{found.line}`, another `{found.theirs}`"
        return replace(own, process=found.process, headline=headline, sure=False)
    one = meeting.told_otherwise(essential)
    if one is None:
        return None
    own = next((cause for cause in causes if cause.process is one), causes[0])
    headline = f"{own.headline}; it alone said `{meeting.own_words(one, essential)}`"
    return replace(own, process=one, headline=headline, sure=False)


def flagged(first: Cause, processes: Sequence[Process]) -> Cause | None:
    """Where ranks leave because one of them, which none names, had failed: the only one that said something else.

    For values-torchrun-flag.
    """
    if first.finding is None or first.finding.rule.name != TOLD or len(processes) < 2:
        return None
    found = differences.branch([process for process in processes if process.rank.role != "launcher"])
    if found is None:
        return None
    one, said = found
    headline = f"{said} ({first.headline})"
    return replace(first, process=one, code="exception", headline=headline, weight=DEFINITE, finding=None, sure=False)


def sent_badly(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a rank leaves because of what another sent or had: that one, if it is named and says nothing of its own.

    For values-gradient-of-another.
    """
    first = causes[0]
    found = _SENT_BADLY.search(first.headline)
    number = int(found[1]) if found else first.rank.rank
    if number == first.rank.rank or any(cause.weight <= first.weight and cause is not first for cause in causes):
        return None
    one = next((process for process in processes if process.rank.rank == number and not process.rank.failed), None)
    return replace(first, process=one, sure=False) if one is not None else None


def uncounted(causes: Sequence[Cause], processes: Sequence[Process]) -> Blame | None:
    """Where ranks that gave up waiting had counted who came, or whom they asked: the only one that did not come.

    For r-own-asyncio-wait-for-peer, values-results-one-by-one, values-checked-in-list, values-asks-in-turn.
    """
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    numbers = {process.rank.rank for process in essential}
    failed = {cause.rank.rank for cause in causes}
    absent: set[int] = set()
    for cause in causes:
        for came in differences.came(cause.process, numbers):
            absent |= numbers - came - {cause.rank.rank}
    absent = absent or {number for cause in causes for number in differences.asked_last(cause.process)}
    missing = [process for process in essential if process.rank.rank in absent]
    if len(missing) != 1 or missing[0].rank.rank in failed:
        return None
    why = LEFT if has_ended(missing[0]) else not_there(missing[0])
    return Blame(missing[0], why, where=waiting.place_of(missing[0]), sure=False)


def outvoted(causes: Sequence[Cause]) -> Cause | None:
    """Where each rank says that it differs from another: the one that all the others name."""
    alike = [cause for cause in causes if likeness(cause) == likeness(causes[0])]
    named = {cause.rank.rank: _others_in(cause) for cause in alike}
    if len(alike) < max(3, len(causes)) or any(len(others) != 1 for others in named.values()):
        return None
    number, votes = Counter(other for others in named.values() for other in others).most_common(1)[0]
    odd = next((cause for cause in alike if cause.rank.rank == number), None)
    return replace(odd, sure=False) if odd is not None and votes == len(alike) - 1 else None


def odd_in_list(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where ranks compare what all of them have and print it as a list: the only one with another value."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    number = differences.odd_in_list(causes[0].headline, len(essential))
    if number is None or any(likeness(cause) != likeness(causes[0]) for cause in causes):
        return None
    own = next((cause for cause in causes if cause.rank.rank == number), None)
    process = next((process for process in essential if process.rank.rank == number), None)
    if own is None and process is not None:
        own = replace(causes[0], process=process)
    return replace(own, sure=False) if own is not None else None


def _others_in(cause: Cause) -> set[int]:
    """The other ranks that a rank names."""
    return {int(found) for found in _RANK.findall(cause.headline)} - {cause.rank.rank}


def _valued(cause: Cause) -> str:
    """What a cause says, without the rank's own number."""
    return re.sub(r"\d+", lambda match: "#" if match[0] == str(cause.rank.rank) else match[0], cause.headline)


def by_progress(processes: Sequence[Process]) -> Blame | None:
    """Where no stack tells: the only rank that is behind all the others, or that said something else last."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    if len(essential) < 3 or any(waiting.stack_of(process) for process in essential):
        return None
    steps = progress.of(essential)
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
    """An exception that a rank does not show, but names in a record of its own."""
    words = process.log.last_words(_LAST_WORDS)
    at = next((i for i in range(len(words) - 1, -1, -1) if _NAMES_EXCEPTION.search(words[i])), None)
    if at is None or any(map(is_handled, words[at:])):
        return None
    return named_in(process, words[at].strip())
