"""Which rank is meant by one that failed by itself and speaks of others: by a value, a name, a number, or an echo."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from muster.diagnosis import differences, meeting, remote
from muster.diagnosis.advice.case import port_in
from muster.diagnosis.causes import DEFINITE, RENDEZVOUS, Cause, by_exception, complaint, last_words
from muster.diagnosis.gangs import NAMES_EXCEPTION, likeness, with_exception, without_numbers
from muster.diagnosis.launchers import Process, started_by
from muster.diagnosis.table.machines import TOLD
from muster.diagnosis.words import is_handled, sounds_like_failure

MISSING = re.compile(
    r"(?i)\b(?:missing|absent|pending|overdue|not (?:there|here|ready|done|seen)|without|lacking"
    r"|unfinished|outstanding|unanswered|silent|quiet|stale|behind|late|dead|lost|unreachable|unresponsive|gone|stragglers?|incomplete)\b[^\[{(]{0,25}[\[{(]"
    r"(\d{1,6}(?:, ?\d{1,6}){0,64})[\]})]"
)
_SENT_BADLY = re.compile(
    r"(?i)\b(?:gradient|update|result|message|part|batch|tensor|value|state|weights|parameters|digest|checksum|loss|data"
    r"|reply|answer|shard|packet|frame|header|record|hello|config\w*)s?(?: \d{1,9})? (?:of|from|by|sent by)"
    r" (?:rank|worker|peer|client|node|process|actor) ?(\d{1,6})\b.{0,40}"
    r"\b(?:out of range|nan|inf|corrupt\w*|invalid|bad|wrong|mismatch\w*|unexpected|malformed|garbage"
    r"|truncated|too (?:large|small|short|long|old|new)|differs?|does not|is not)\b"
)
_TWICE = re.compile(
    r"(?i)\btwice\b|\bduplicate\b|\balready (?:registered|joined|connected|taken|present|known|claimed|there|here)\b"
    r"|\b(?:is|was) taken\b|\btwo (?:ranks|workers|clients|processes|peers)\b"
)
_NAMED = re.compile(
    r"(?i)\b(?:(?:rank|peer|replica|member|trainer)s?[ #:=]{0,2}[\[(]?"
    r"|(?:of|from|by|on|at|with) (?:worker|client|process|actor|learner|node)s?[ #:=]{0,2}[\[(]?"
    r"|(?:fail\w*|errors?|crash\w*|broken?|refused|rejected|bad|invalid) (?:on|at|for|in|from):? [#\[(]?"
    r"|(?:sent|announced|given|written|reported|claimed|provided|received|returned) (?:by|from) [#\[(]?)"
    r"(\d{1,6})\b(?![.:/%]\d| ?(?:of|s|ms|steps?|ranks|workers|times)\b)"
)
_BARE = re.compile(
    r"(?:([A-Za-z]{0,20})[ :#=/_\[({-]{1,3}|(?<=[/_-]))(\d{1,5})(?![0-9A-Za-z]|[:.,]\d|/\d"
    r"| ?(?:of|s|ms|sec\w*|min\w*|steps?|ranks|workers|times|attempts|bytes|rows|peers|%)\b)"
)
_COUNTS = re.compile(
    r"(?i)^(?:steps?|epochs?|iter\w*|rounds?|batch|attempts?|phase|turn|version|v|line|port|code|after|within|only|got|need\w*"
    r"|expected|than|have|has|had|errno|seq|age|world|size|count|total)$"
)
_LAGS = re.compile(r"(?i)\b(?:behind|stragglers?|too slow|lag(?:s|ging)?)\b")
_RATIO = re.compile(r"\d(?::| of )$")
_THINGS = re.compile(
    r"(?i)^(?:shards?|samples?|files?|layers?|experts?|gpus?|devices?|buckets?|tables?|pages?|chunks?|parts?|records?|rows?|items?"
    r"|class|labels?|folds?|blocks?|partitions?|splits?|columns?|images?|frames?|quer(?:y|ies)|requests?|jobs?|levels?|cells?"
    r"|index|idx|seed|expression|field|argument|character|position|element|token|entry|block|key|value|number|dimension|dim)$"
)
REFERENCE = re.compile(
    r"(?i)\b(?:differ\w*|other|unlike|than|like|as|same|match\w*|equals?|versus|vs|compared?|that|one|those|to|agree\w*)\b"
    r"[^,;]{0,30}$"
)
WAITED = re.compile(
    r"(?i)time(?:d[ -]?)?[ -]?out|\bwithin\b|\bafter \d|\bfor \d+(?:\.\d+)? ?(?:s|ms|sec|min)"
    r"|\bno (?:repl|answer|message|heart|sign|respon|word|data|token|result)"
    r"|\bnever\b|\bdid not\b|\bmissing\b|\bsilent\b|\bgone\b|\blost\b|\bwait"
    r"|\bunreachable\b|\bcannot (?:reach|connect)|\bsend(?:ing)? to\b"
)
_TURNED_DOWN = re.compile(r"(?i)\b(?:rejected|refused|denied|not accepted)\b")
_LEFT_UNDONE = re.compile(
    r"(?i)\b(?:error|exception|cannot|could not|couldn't|failed|fatal|traceback)\b|Error\b|Exception\b"
    r"|\bnot (?:computed|written|saved|sent|made|finished|produced|created|loaded|read|delivered|uploaded|stored)\b"
)
_LONG_ENOUGH = 15
_SUBJECT = re.compile(
    r"(?:^|[,;:(\[] ?|\b(?:from|by|to|with) )#?(\d{1,6})(?!\d|[\w.:/%]\d| ?(?:s|ms|sec\w*|min\w*|of|bytes|%)\b"
    r"| (?!(?:has|is|was|says|sends|gives|does|reports|wants)\b)[a-z]{2,20}s\b)"
)
"""A number that neither belongs to a thing before it nor counts what follows it."""
_RANK = re.compile(r"(?i)\brank (\d{1,6})\b")
_SPEAKER = re.compile(r"\W{0,2}(?:(?:rank|process|proc|worker|task|pe)[ _#=:]{0,2})?(\d{1,6})\b[\]):]", re.I)
_PASSED_ON = re.compile(
    r"(?:\b([^\W\d]{2,20})[ #]{1,2}|\{)(\d{1,6}): ['\"]?(?:\w{1,60}\.){0,6}[A-Z]\w{1,60}(?:Error|Exception)\b"
)
_FEW = 3
_FIRST = 50


def by_what_is_said(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a rank failed by itself and speaks of others: the one that it means. The first method that finds one
    decides.
    """
    return (
        took_the_port(causes, processes)
        or remote.hung_up(causes)
        or passed_on(causes, processes)
        or odd_value(causes, processes)
        or outvoted(causes)
        or odd_in_list(causes, processes)
        or sent_badly(causes, processes)
        or impostor(causes, processes)
        or echoed(causes[0], processes)
        or by_name(causes, processes)
        or by_own_word(causes, processes)
        or said_otherwise(causes)
        or unanimous(causes, processes)
        or numbered(causes, processes)
        or spoke_in_shared_log(causes, processes)
        or went_another_way(causes, processes)
        or troubled(causes, processes)
    )


def took_the_port(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a rank finds its port taken: the only other one that had printed that port (apart-takes-port)."""
    first = causes[0]
    # It is not known to whom the ports of other ranks belong.
    port = port_in(first.headline) if first.code == "port_trouble" and not first.rank.rank else None
    if port is None:
        return None
    at = re.compile(rf"(?<![\d.]){port}(?!\d)")
    told = [
        (process, line.strip()[:200])
        for process in processes
        if process.rank.role != "launcher" and (line := next(filter(at.search, process.log.first_words(_FIRST)), ""))
    ]
    if len(told) != 1 or told[0][0].rank.failed or told[0][0].rank.node != first.rank.node:
        return None
    one, said = told[0]
    headline = f"it said `{said}`, where rank {first.rank.rank} was to listen: {first.headline}"
    return replace(first, process=one, headline=headline, sure=False)


def passed_on(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where ranks leave with an exception that stands after the number of another, whatever that is called: that one.

    For t-end-gathered-errors, whom-german, whom-spanish, whom-dict-of-errors.
    """
    first = causes[0]
    told = _PASSED_ON.search(first.headline)
    if (
        told is None
        or _fail_otherwise(causes)
        or len(processes) < 2
        or _THINGS.search(told[1] or "")
        or _COUNTS.search(told[1] or "")
    ):
        return None
    if not speaks_for_itself(first) and first.code != "exit_code":
        return None
    one = next((item for item in processes if item.rank.rank == int(told[2]) and item.rank.role != "launcher"), None)
    if one is None or one is first.process:
        return None
    return replace(_said_of(first, one), code="exception")


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


def _valued(cause: Cause) -> str:
    """The words of a cause, without the rank's own number."""
    return re.sub(r"\d+", lambda match: "#" if match[0] == str(cause.rank.rank) else match[0], cause.headline)


def outvoted(causes: Sequence[Cause]) -> Cause | None:
    """Where each rank says that it differs from another: the one that all the others name."""
    alike = [cause for cause in causes if likeness(cause) == likeness(causes[0])]
    named = {cause.rank.rank: _others_in(cause) for cause in alike}
    if len(alike) < max(3, len(causes)) or any(len(others) != 1 for others in named.values()):
        return None
    number, votes = Counter(other for others in named.values() for other in others).most_common(1)[0]
    odd = next((cause for cause in alike if cause.rank.rank == number), None)
    return replace(odd, sure=False) if odd is not None and votes == len(alike) - 1 else None


def _others_in(cause: Cause) -> set[int]:
    """The other ranks that a rank names."""
    return {int(found) for found in _RANK.findall(cause.headline)} - {cause.rank.rank}


def odd_in_list(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where ranks compare what all of them have and print it as a list: the only one with another value."""
    essential = [process for process in processes if process.rank.essential and process.rank.role != "launcher"]
    count = len({process.rank.rank for process in essential})
    number = differences.odd_in_list(causes[0].headline, count, speaks_for_itself(causes[0]))
    if number is None or _fail_otherwise(causes):
        return None
    own = next((cause for cause in causes if cause.rank.rank == number and cause.weight < RENDEZVOUS), None)
    process = next((process for process in essential if process.rank.rank == number), None)
    if own is None and process is not None:
        own = _said_of(causes[0], process)
    return replace(own, sure=False) if own is not None else None


def sent_badly(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a rank leaves because of what another sent or had: that one, if it is named and prints no error of its own.

    For values-gradient-of-another, further-update-not-a-number.
    """
    first = causes[0]
    found = _SENT_BADLY.search(first.headline)
    number = int(found[1]) if found else first.rank.rank
    if number == first.rank.rank or any(c.weight < RENDEZVOUS and c is not first for c in causes):
        return None
    one = next((process for process in processes if process.rank.rank == number), None)
    return _said_of(first, one) if one is not None else None


def impostor(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a number came twice: the only rank that uses another's number (further-registered-twice)."""
    first, ranks = causes[0], [process for process in processes if process.rank.role != "launcher"]
    one = differences.impostor(ranks) if _TWICE.search(first.headline) else None
    told = _numbers(first.headline)
    if one is None and speaks_for_itself(first) and len(ranks) > 1 and first.rank.rank not in told:
        # Whatever the noun in front of it: a number of another rank is in the message.
        one = differences.misnumbered(ranks, told)
    own = next((cause for cause in causes if cause.process is one), None)
    if one is None or (own is not None and own.weight < RENDEZVOUS):
        return None
    return _said_of(causes[0], one)


def _numbers(line: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?<![\w.])\d{1,6}(?!\w|\.\d)", line)}


def echoed(first: Cause, processes: Sequence[Process]) -> Cause | None:
    """Where a rank repeats an error of another that was passed on to it: that one (further-error-frame)."""
    if not speaks_for_itself(first) or len(processes) < 2 or _TURNED_DOWN.search(first.headline):
        return None
    parts = first.headline.split(": ")
    for begin in range(1, len(parts)):
        said = ": ".join(parts[begin:]).strip(" '\")")
        if len(said) < _LONG_ENOUGH:
            return None
        others = [process for process in processes if process is not first.process and _has_said(process, said)]
        if others:
            alone = len(others) == 1 and not _repeats(others[0], first)
            return _with_its_own(first, others[0], said) if alone else None
    return None


def _has_said(process: Process, said: str) -> bool:
    tail = process.rank.tail
    return said in tail if tail else any(said in line for line in process.log.lines)


def _repeats(process: Process, first: Cause) -> bool:
    """Whether a rank ended with exactly the words of another: both failed alike."""
    return any(raised.line == first.raised.line for raised in process.log.raised) if first.raised else False


def _with_its_own(first: Cause, process: Process, said: str) -> Cause:
    for raised in reversed(process.log.raised):
        for one in (raised, *raised.causes):
            if said in one.line:
                return replace(by_exception(process, replace(one, causes=())), sure=False)
    return _said_of(first, process)


def by_name(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a rank leaves because of what another is or has: that one, if it is named and did not fail by itself.

    For further-hello-version, further-torch-failed-on, r-gang-all-assert-one-differs.
    """
    first = causes[0]
    if not speaks_for_itself(first):
        return None
    said = first.headline
    told = [found for found in _NAMED.finditer(said) if not REFERENCE.search(said[: found.start()])]
    numbers = {int(found[1]) for found in told} - {first.rank.rank}
    if not numbers and _LAGS.search(said):
        numbers = bare_numbers(said) - {first.rank.rank}
    if not numbers and (missing := MISSING.search(said)):
        numbers = {int(number) for number in missing[1].split(",")}
    others = [process for process in processes if process.rank.rank in numbers]
    if len(numbers) == 1 and not others and numbers <= started_by(first.rank):
        # Its launcher does not report it (further-mpirun-gather).
        return _said_of(first, replace(first.process, rank=replace(first.rank, rank=min(numbers))))
    if len(numbers) != 1 or len(others) != 1 or WAITED.search(said):
        return None
    own = [cause for cause in causes if cause.process is others[0] and cause.weight < RENDEZVOUS]
    return _said_of(first, others[0]) if all(likeness(cause) == likeness(first) for cause in own) else None


def unanimous(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where ranks leave with the very same words, in which one number may be that of a rank: that one.

    For again-key-misspelt.
    """
    first = causes[0]
    numbers = bare_numbers(first.headline)
    same = [cause for cause in causes if cause.headline == first.headline]
    lacks = WAITED.search(first.headline) or " not " in first.headline
    if not speaks_for_itself(first) or len(same) < 2 or len(numbers) != 1 or not lacks or _fail_otherwise(causes):
        return None
    one = next((process for process in processes if process.rank.rank in numbers), None)
    own = next((cause for cause in causes if cause.process is one), None)
    if one is None or (own is not None and own not in same):
        return None
    return replace(own, sure=False) if own is not None else _said_of(first, one)


def by_own_word(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a rank says a name, a port or a process's number that only one other has in a line which all of them print.

    For astray-names, astray-ports, astray-pids, astray-letters.
    """
    first = causes[0]
    if not speaks_for_itself(first) or any(cause.weight < RENDEZVOUS for cause in _otherwise(causes)):
        return None
    others = [item for item in processes if item.rank.role != "launcher" and item is not first.process]
    one = differences.known_by(first.headline, first.process, others)
    return _said_of(first, one) if one is not None else None


def said_otherwise(causes: Sequence[Cause]) -> Cause | None:
    """Where ranks leave with the same words, which they were told, and one alone with others: that one.

    For astray-late-code.
    """
    if len(causes) < _FEW or any(cause.code != "exit_code" or cause.signal is not None for cause in causes):
        return None
    unlike = _otherwise(causes)
    codes = {cause.rank.exit_code for cause in causes if cause not in unlike}
    if len(unlike) != 1 or not unlike[0].headline or unlike[0].rank.exit_code in codes:
        return None
    return replace(unlike[0], sure=False)


def _otherwise(causes: Sequence[Cause]) -> list[Cause]:
    """Those that ended differently from the first."""
    return [cause for cause in causes if likeness(cause) != likeness(causes[0])]


def numbered(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a number in what a rank says may be that of a rank which ended or stopped unlike all the others: that one.

    For elsewhere-short-shard.
    """
    first, essential = causes[0], [item for item in processes if item.rank.essential and item.rank.role != "launcher"]
    numbers = {int(number) for number in _SUBJECT.findall(first.headline)} - {first.rank.rank}
    if not speaks_for_itself(first) or _fail_otherwise(causes) or not numbers or len(essential) <= _FEW:
        return None
    if any(process.shared for process in processes):
        return None
    one = differences.unlike([process for process in essential if process is not first.process])
    return _said_of(first, one) if one is not None and one.rank.rank in numbers else None


def bare_numbers(line: str) -> set[int]:
    """Numbers that may be ranks: not counts of time, of steps or of ranks, nor parts of other numbers."""
    found = set()
    for match in _BARE.finditer(line):
        before, word = line[: match.start(2)], match[1] or ""
        # A path with a number in it may be a rank's; a thing with a number is not.
        a_thing = bool(_THINGS.search(word)) and not before.endswith(("/", "_", "-"))
        if not _COUNTS.search(word) and not a_thing and not _RATIO.search(before[-6:]):
            found.add(int(match[2]))
    return found


def spoke_in_shared_log(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where several ranks, which share a log, raise the same: the only one with an earlier line under its number.

    For further-mpirun-flag.
    """
    first = causes[0]
    log, started = first.process.log, started_by(first.rank)
    if not speaks_for_itself(first) or first.raised is None or not first.process.shared:
        return None
    if sum(raised.line == first.raised.line for raised in log.raised) < 2:
        return None
    spoken = [(int(found[1]), line) for line in log.words_between(0) if (found := _SPEAKER.match(line))]
    counted = Counter(without_numbers(line) for _, line in spoken)
    alone = [(number, line) for number, line in spoken if counted[without_numbers(line)] == 1 and number in started]
    if len({number for number, _ in alone}) != 1:
        return None
    number, line = alone[-1]
    one = replace(first.process, rank=replace(first.rank, rank=number))
    headline = f"{with_exception(log, line.strip())} ({first.headline})"
    return replace(first, process=one, headline=headline, sure=False)


def went_another_way(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where several ranks leave alike: the only one that had reported an error before, whatever its level.

    For further-torch-flag-unnamed.
    """
    first, ranks = causes[0], [process for process in processes if process.rank.role != "launcher"]
    alike = [process for process in ranks if _ends_with(process, first.headline)]
    if not speaks_for_itself(first) or len(alike) < 2 or _fail_otherwise(causes):
        return None
    found = differences.branch(ranks) if sounds_like_failure(first.headline) else None
    if found is None or not differences.is_unusual(found[1]) or is_handled(found[1]):
        return None
    one, said = found
    own = next((cause for cause in causes if cause.process is one), first)
    told = replace(own, process=one, headline=f"{with_exception(one.log, said)} ({first.headline})", sure=False)
    return replace(told, code="exception") if NAMES_EXCEPTION.search(said) else told


def troubled(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where a rank fails over what it found, and one alone had reported a failure of its own before: that one.

    For elsewhere-half-written, s-two-real-errors-first-counts.
    """
    first, ranks = causes[0], [process for process in processes if process.rank.role != "launcher"]
    if first.code != "exception" or first.raised is None or first.rank.launcher_rank is not None or len(ranks) < 2:
        return None
    if any(cause.weight < RENDEZVOUS for cause in causes[1:]) or speaks_for_itself(first):
        return None
    own = differences.own_lines(ranks)
    told = [
        (process, line.strip())
        for process in ranks
        for line in own.get(process.rank.rank, [])[-1:]
        if _LEFT_UNDONE.search(line) and not is_handled(line) and complaint(process) is None
    ]
    if len(told) != 1 or told[0][0] is first.process:
        return None
    one, line = told[0]
    return replace(first, process=one, headline=f"{line} (then rank {first.rank.rank}: {first.headline})", sure=False)


def _ends_with(process: Process, said: str) -> bool:
    """Whether a rank ended with the same words, apart from numbers."""
    last = [*process.log.last_words(_FEW), *(raised.line for raised in process.log.raised[-1:])]
    return without_numbers(said) in map(without_numbers, map(str.strip, last))


def disagrees(causes: Sequence[Cause], processes: Sequence[Process]) -> Cause | None:
    """Where ranks leave because they do not agree: the only one that had printed another value than all the rest.

    For r-own-config-hash-differs, values-digest, values-names, further-shapes-at-hub.
    """
    first, essential = causes[0], [item for item in processes if item.rank.essential and item.rank.role != "launcher"]
    if _fail_otherwise(causes):
        return None
    found = differences.value(essential)
    if not differences.is_disagreement(first.headline) and not (found and found.explains(first.headline)):
        return None
    if found is not None:
        own = next((c for c in causes if c.process is found.process and c.weight < RENDEZVOUS), first)
        headline = f"{own.headline}; it said `{found.line}`, another `{found.theirs}`"
        return replace(own, process=found.process, headline=headline, sure=False)
    one = meeting.told_otherwise(essential)
    if one is None:
        return None
    own = next((cause for cause in causes if cause.process is one), causes[0])
    headline = f"{own.headline}; it alone said `{meeting.own_words(one, essential)}`"
    return replace(own, process=one, headline=headline, sure=False)


def flagged(first: Cause, processes: Sequence[Process]) -> Cause | None:
    """Where ranks leave because one of them, which none names, had failed: the only one that printed something else.

    For values-torchrun-flag.
    """
    if first.finding is None or first.finding.rule.name != TOLD or len(processes) < 2:
        return None
    found = differences.branch([process for process in processes if process.rank.role != "launcher"])
    if found is None:
        return None
    one, said = found
    headline = f"{with_exception(one.log, said)} ({first.headline})"
    return replace(first, process=one, code="exception", headline=headline, weight=DEFINITE, finding=None, sure=False)


def speaks_for_itself(cause: Cause) -> bool:
    """Whether the last words of a rank are its own view: it left, or raised something itself."""
    if cause.code == "exit_code":
        return cause.signal is None
    inner = cause.raised.frames[-1] if cause.raised is not None and cause.raised.frames else None
    own = inner is not None and inner.source.startswith(("raise", "assert")) and not inner.of_library
    return cause.code in ("exception", "host_oom") and own


def _fail_otherwise(causes: Sequence[Cause]) -> bool:
    """Whether ranks failed by themselves in another way than the first; those that lost it do not count."""
    return any(cause.weight < RENDEZVOUS and likeness(cause) != likeness(causes[0]) for cause in causes)


def _said_of(first: Cause, process: Process) -> Cause:
    """One rank's words about another, as that one's failure."""
    return replace(first, process=process, headline=f"{first.headline} (so says rank {first.rank.rank})", sure=False)
