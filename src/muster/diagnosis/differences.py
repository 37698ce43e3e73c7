"""Compares what ranks print: another value in the same words, a line that only one has, how far each came."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from muster.diagnosis import waiting
from muster.diagnosis.launchers import Process

_NUMBER = re.compile(r"(?<![\w.])(?=[a-f]{0,40}\d)[0-9a-f]{6,64}(?![\w.])|\d+(?:\.\d+)?")
"""Numbers, and digests of six or more digits."""
_TIME = re.compile(r"\d{1,4}[-/:]\d\d[-/:]\d\d[\d.,:TZ+ ]{0,20}")
_WORD = re.compile(r"(?<![\w.])(?:[A-Za-z_][\w-]{2,60}(?:\.\w{1,10})?|\d{4,9}|(?=[a-f]{0,40}\d)[0-9a-f]{6,64})(?!\w)")
_BARE_LIST = re.compile(r"^\w{0,60}(?:Error|Exception|Exit)?:? ?\[[^\[\]]{1,1000}\]$")
"""The whole line is a list."""
_LIST = re.compile(r"[\[({]\d+(?:, ?\d+)+[\])}]")
_VALUES = re.compile(r"\[([^\[\]{}]{1,1000})\]|\{([^\[\]{}]{1,1000})\}")
_KEYED = re.compile(r"['\"]?(?:rank|worker|r)?[ _]?(\d{1,6})['\"]?: ?(.+)$")
_PAIRS = re.compile(
    r"\b(?:(?:rank|worker|node|peer|r|w)[ _]?)?(\d{1,6}) ?"
    r"(?::|=|->|→|\b(?:has|had|is|at|got|with|gave|sent|says?|reports?)\b) ?"
    r"(\([^()]{1,80}\)|\[[^\[\]]{1,80}\]|['\"]?[\w.+-]{1,80})"
)
_ROW = re.compile(
    r"(?<![\w.])[\w.]{1,40}(?:/[\w.]{1,40}){2,255}|(?<![\w.])\d[\w.]{0,40}(?:[,;|]? {0,2}\d[\w.]{0,40}){2,255}"
)
_BETWEEN = re.compile(r"[/,;| ]{1,4}")
_DIFFER = re.compile(
    r"(?i)differ|mismatch|inconsisten|disagree|no agreement|conflict|cannot (?:stack|concat|merge|combine|average)"
    r"|diverge|out of sync|uneven|unequal|imbalance"
    r"|not (?:all )?(?:equal|the same|identical|agree|match)"
    r"|(?:must|should|have to|need to) (?:all )?(?:be (?:equal|the same|identical|alike)|agree|match|have the same)"
)
_SHAPES = re.compile(r"(?i)\b(?:shapes?|sizes?|dimensions?|lengths?|broadcast|columns|features|elements|bytes)\b")
_CAME = re.compile(
    r"(?i)\b(?:have|has|got|received|seen|heard|arrived|joined|ready|done|present|connected|registered|reported|finished"
    r"|collected|gathered|accepted|hello|from|by|here|came|so far|checked in)\b"
)
_CAME_NOT = re.compile(r"(?i)\b(?:not|no|missing|absent|without|wait\w*|expect\w*|lack\w*|pending|left|still)\b|n't\b")
_NUMBERS = re.compile(r"[\[{(]((?:\d{1,6}(?:(?:, ?| )\d{1,6}){0,255})?)[\]})]")
_PEER = re.compile(
    r"(?i)\b(?:rank|worker|peer|client|member|node|process|actor|trainer|from|by)s?[ #:=_]{0,2}(\d{1,6})\b"
)
_ASKS = re.compile(
    r"(?i)\b(?:ask|wait|call|poll|request|contact|fetch|pull|send|query|ping|read|collect|receiv|join)(?:s|ing)?\b"
)
_ITSELF = re.compile(r"(?i)\b(?:i am|i'm|this is|rank|worker|process|member|replica|node)[ :=]{0,3}(?:rank |worker )?$")
_FEWEST = 3
_CLAIMS = re.compile(
    r"(?i)\b(?:i am|i'm|this is|my (?:rank|id) is|rank|worker)[ :=#]{0,3}(?:rank |worker |number )?(\d{1,6})\b"
)
RECORDS = (None, re.compile(r"\b(?:WARN|WARNING|NOTICE)\b"), re.compile(""))
_UNUSUAL = re.compile(
    r"(?i)\b(?:skip\w*|empty|no|not|without|over-?flow\w*|under-?flow\w*|nan|inf|retry\w*|missing|fall\w* ?back|early"
    r"|ignor\w+|stop\w*|instead|drop\w*|bad|invalid|fail\w*|error|only|exhausted|nothing|done|finished|short|fewer|odd)\b"
)
_FIRST_LINES = 20
_LAST_LINES = 40
_FEW_LINES = 10
_FIGURE = re.compile(r"\d+(?:\.\d+)?")
_STEP_LINES = 200
_FEW_STEP_LINES = 12
_MANY = 64
"""With more ranks than this, fewer lines are compared: a verdict must not be late."""
_ENOUGH = 4
"""At least so many ranks must count alike before a number is taken for a neighbour's."""


@dataclass(frozen=True)
class Difference:
    """A rank that differs from all the others."""

    process: Process
    line: str
    """The words of this rank."""
    theirs: str
    """The words of another one; empty where its own line says it all."""

    def explains(self, headline: str) -> bool:
        """Whether its own value, or that of the others, stands in an error about shapes or sizes."""
        own = set(_NUMBER.findall(self.line)) ^ set(_NUMBER.findall(self.theirs))
        return bool(_SHAPES.search(headline)) and bool(own & set(_NUMBER.findall(headline)))


_Row = tuple[str, tuple[str, ...]]
"""A line as it was printed, and its numbers."""


def value(processes: Sequence[Process]) -> Difference | None:
    """The only rank that gives another value than all the rest in the same words.

    One that leads the others may not speak as they do (elsewhere-old-protocol).
    """
    if len(processes) < _FEWEST:
        return None
    most = _FIRST_LINES if len(processes) <= _MANY else _FEW_LINES
    said = {process.rank.rank: _rows(process, most) for process in processes}
    if not any(said.values()) and len(processes) <= _MANY:
        # All their lines are log records (apart-elects).
        said = {process.rank.rank: _rows(process, most, RECORDS[-1]) for process in processes}
    without_first = {rank: rows for rank, rows in said.items() if rank}
    found = _odd_value(processes, said)
    return found or (_odd_value(processes, without_first) if len(without_first) >= _FEWEST else None)


def _odd_value(processes: Sequence[Process], said: Mapping[int, dict[str, _Row]]) -> Difference | None:
    shapes = set.intersection(*(set(rows) for rows in said.values()))
    by_rank = {process.rank.rank: process for process in processes}
    for shape in sorted(shapes, key=list(next(iter(said.values()))).index):
        rows = {number: found[shape] for number, found in said.items()}
        for votes in _votes(rows, shape):
            if (odd := _alone(votes)) is not None:
                other = next((rows[n][0] for n in rows if n != odd and _shown(rows[n][0]) != _shown(rows[odd][0])), "")
                return Difference(by_rank[odd], _shown(rows[odd][0]), _shown(other))
    return None


def _votes(rows: Mapping[int, _Row], shape: str) -> Iterator[Mapping[int, object]]:
    """Values that ranks are expected to agree on: a common one, one for each group, or their neighbours."""
    groups = {rank: _NUMBER.findall(match[0]) for rank, (line, _) in rows.items() if (match := _LIST.search(line))}
    within = {rank: str(rank) in members for rank, members in groups.items()}
    if len(groups) == len(rows) and sum(within.values()) > 1:
        yield within
    width = min(len(numbers) for _, numbers in rows.values())
    columns = [{rank: numbers[column] for rank, (_, numbers) in rows.items()} for column in range(width)]
    for column, before in zip(columns, shape.split("#"), strict=False):
        own = {rank: value == str(rank) for rank, value in column.items()}
        if all(value.isdigit() and int(value) % len(rows) == rank for rank, value in column.items()):
            # Passed around (whom-token-dropped).
            continue
        if sum(own.values()) == len(rows) - 1 and (_ITSELF.search(before) or len(rows) >= _ENOUGH):
            # One that uses another's number (values-same-rank, elsewhere-same-seat).
            yield own
            return
    # A column that only counts the ranks means nothing.
    columns = [column for column in columns if any(value != str(rank) for rank, value in column.items())]
    yield from columns
    if len(rows) >= _ENOUGH:
        for column in columns:
            if all(value.isdigit() for value in column.values()):
                numbers = {rank: int(value) for rank, value in column.items()}
                yield {rank: (number - rank) % len(rows) for rank, number in numbers.items()}
                yield _intruders(numbers)


def _intruders(partners: Mapping[int, int]) -> Mapping[int, object]:
    """Where ranks name partners: whether one names a rank that is already another's partner."""
    paired = {rank for rank, other in partners.items() if partners.get(other) == rank and other != rank}
    return {rank: rank not in paired and other in paired for rank, other in partners.items()}


def _shown(line: str) -> str:
    return line.strip()[:200]


def _alone(votes: Mapping[int, object]) -> int | None:
    """The only one that differs from all the others, which agree."""
    counted = Counter(votes.values())
    if len(counted) != 2 or min(counted.values()) != 1 or max(counted.values()) < 2:
        return None
    single = min(counted, key=lambda found: counted[found])
    return next(rank for rank, found in votes.items() if found == single)


def _rows(process: Process, most: int, records: re.Pattern[str] | None = None) -> dict[str, _Row]:
    """The first words of a process by their shape."""
    log = process.log
    end = log.raised[0].begin if log.raised else len(log.lines)
    found: dict[str, _Row] = {}
    for line in log.first_words(most, end, records):
        bare = _TIME.sub("", line[:300])
        found.setdefault(_NUMBER.sub("#", bare), (line, tuple(_NUMBER.findall(bare))))
    return found


def branch(processes: Sequence[Process]) -> tuple[Process, str] | None:
    """The only rank with a line of a kind that no other printed, and that line: it took another path.

    Records of a log count where nothing else tells: first warnings, then all.
    """
    for records in RECORDS:
        own = {rank: lines for rank, lines in own_lines(processes, records).items() if lines}
        # The first rank often prints on behalf of all.
        odd = [rank for rank, lines in own.items() if rank or any(map(_UNUSUAL.search, lines))]
        if len(odd) == 1:
            lines = own[odd[0]]
            telling = [line for line in lines if _UNUSUAL.search(line)]
            process = next(process for process in processes if process.rank.rank == odd[0])
            return process, (telling or lines)[-1].strip()[:200]
        if odd:
            return None
    return None


def is_unusual(line: str) -> bool:
    """Whether a line reports something that does not happen on every rank."""
    return bool(_UNUSUAL.search(line))


def impostor(processes: Sequence[Process]) -> Process | None:
    """The only rank that gives another's number as its own, where the others give their own in the same words."""
    claims: dict[str, dict[int, int]] = {}
    for process in processes:
        for line in process.log.first_words(_FIRST_LINES):
            bare = _TIME.sub("", line[:300])
            if found := _CLAIMS.search(bare):
                claims.setdefault(_NUMBER.sub("#", bare), {}).setdefault(process.rank.rank, int(found[1]))
    for claimed in claims.values():
        wrong = [rank for rank, number in claimed.items() if number != rank]
        if len(wrong) == 1 and len(claimed) > 1:
            return next(process for process in processes if process.rank.rank == wrong[0])
    return None


def misnumbered(processes: Sequence[Process], told: set[int]) -> Process | None:
    """The only rank that gives the number of another, one of those told of, where the rest give their own."""
    most = _FIRST_LINES if len(processes) <= _MANY else _FEW_LINES
    said = {process.rank.rank: _rows(process, most) for process in processes}
    said = said if set.intersection(*map(set, said.values())) else {rank: rows for rank, rows in said.items() if rank}
    if len(said) < _FEWEST:
        return None
    for shape in set.intersection(*map(set, said.values())):
        for column in zip(*(said[rank][shape][1] for rank in said), strict=False):
            wrong = {rank: value for rank, value in zip(said, column, strict=True) if value != str(rank)}
            if len(wrong) == 1 and {int(value) for value in wrong.values() if value.isdigit()} & told & set(said):
                return next(process for process in processes if process.rank.rank in wrong)
    return None


def unlike(processes: Sequence[Process]) -> Process | None:
    """The only one that ended differently from all the others, or else that stopped at another line."""
    ended = {process.rank.rank: _ending(process) for process in processes}
    at = {process.rank.rank: waiting.key_of(process) for process in processes}
    for told in (ended, at):
        if None not in told.values() and (odd := _alone(told)) is not None:
            return next(process for process in processes if process.rank.rank == odd)
    return None


def _ending(process: Process) -> tuple[object, ...]:
    if process.rank.expected:
        return ("stopped",)
    return (process.rank.exit_code, process.rank.signal)


def known_by(said: str, speaker: Process, others: Sequence[Process]) -> Process | None:
    """The only one of the others with a word of what is said in a line that all of them print, each with its own."""
    if len(others) < 2 or len(others) > _MANY:
        return None
    # Several may have printed the same.
    words = {process.rank.rank: process.log.first_words(_FIRST_LINES) for process in others}
    lines = {rank: [line for line in found if said not in line] for rank, found in words.items()}
    own = " ".join(speaker.log.first_words(_FIRST_LINES))
    for word in dict.fromkeys(_WORD.findall(said[:500])):
        has = [(rank, line) for rank, found in lines.items() for line in found if _has_word(line, word)]
        if len({rank for rank, _ in has}) != 1 or _has_word(own.replace(said, ""), word):
            continue
        rank, line = has[0]
        before, _, after = line.partition(word)
        alike = re.compile(re.escape(_shape(before)) + r"(\S{1,80})" + re.escape(_shape(after)))
        if all(any(alike.fullmatch(_shape(text)) for text in found) for found in lines.values()):
            return next(process for process in others if process.rank.rank == rank)
    return None


def _has_word(line: str, word: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(word)}(?![\w])", line) is not None


def own_lines(processes: Sequence[Process], records: re.Pattern[str] | None = None) -> dict[int, list[str]]:
    """By rank, the last lines of kinds that no other rank printed; log records only if requested."""
    most = _LAST_LINES if len(processes) <= _MANY else _FEW_LINES
    words = {process.rank.rank: _before_its_end(process, most, records) for process in processes}
    shapes = {number: [_shape(line) for line in lines] for number, lines in words.items()}
    said_by = Counter(shape for found in shapes.values() for shape in set(found))
    return {
        number: [line for line, shape in zip(lines, shapes[number], strict=True) if said_by[shape] == 1]
        for number, lines in words.items()
    }


def _before_its_end(process: Process, most: int, records: re.Pattern[str] | None) -> list[str]:
    """The last words before the exception with which it ended, if it did."""
    log = process.log
    end = log.raised[-1].begin if log.raised else len(log.lines)
    return log.words_between(max(0, end - most), end, records)


def _shape(line: str) -> str:
    return _NUMBER.sub("#", _TIME.sub("", line[:300]))


def is_disagreement(line: str) -> bool:
    """Whether a line says that ranks do not agree."""
    return bool(_DIFFER.search(line))


def came(process: Process, numbers: set[int]) -> Iterator[set[int]]:
    """Sets of ranks that a process says it had heard from, in a list or one per line; never all of the others."""
    others = numbers - {process.rank.rank}
    one_by_one: dict[str, set[int]] = {}
    for line in process.log.last_words(_LAST_LINES if len(numbers) <= _MANY else _FEW_LINES):
        bare = _TIME.sub("", line[:300])
        word = _CAME.search(bare)
        # Numbers in another part of the sentence are about others: "expected 3, got 2, from [1, 3]".
        if word is None or _CAME_NOT.search(
            bare, max(bare.rfind(mark, 0, word.start()) for mark in (", ", "; ", ": ")) + 1
        ):
            continue
        after = bare[word.start() :]
        if found := _NUMBERS.search(after):
            one_by_one.setdefault("", set()).update(map(int, re.findall(r"\d+", found[1])))
        elif found := _PEER.search(after):
            one_by_one.setdefault(_NUMBER.sub("#", bare), set()).add(int(found[1]))
    for told in one_by_one.values():
        if told - {process.rank.rank} < others:
            yield told


def not_counted(process: Process, numbers: set[int]) -> set[int]:
    """Of the others, the only one whose number does not stand in lines of a kind that name all the rest, each once.

    For apart-zmq-other-port.
    """
    others = numbers - {process.rank.rank}
    named: dict[str, list[int]] = {}
    for line in process.log.last_words(_LAST_LINES if len(numbers) <= _MANY else _FEW_LINES):
        bare = _TIME.sub("", line[:300])
        if len(found := _NUMBER.findall(bare)) == 1 and found[0].isdigit():
            named.setdefault(_NUMBER.sub("#", bare), []).append(int(found[0]))
    for told in named.values():
        absent = others - set(told)
        if len(told) == len(set(told)) == len(others) - 1 > 1 and len(absent) == 1:
            return absent
    return set()


def numbers_in_lists(line: str) -> list[set[int]]:
    """The lists of whole numbers in a line."""
    return [{int(number) for number in re.findall(r"\d+", found)} for found in _NUMBERS.findall(line[:2000])]


def asked_last(process: Process) -> set[int]:
    """The numbers of others in the last words of a process before it failed, unless they had answered."""
    log = process.log
    end = log.raised[-1].begin if log.raised else len(log.lines)
    words = log.words_between(max(0, end - _LAST_LINES), end)
    said = _TIME.sub("", words[-1][:300]) if words else ""
    if _CAME.search(said) or not _ASKS.search(said):
        return set()
    return {int(number) for number in _PEER.findall(said)} - {process.rank.rank}


def odd_in_list(line: str, count: int, keyed: bool = False) -> int | None:
    """Of a list with a value of each rank, in a line that says that they differ: the rank of the only other value.

    `keyed`: also in a line with other words, if the list has the ranks' numbers (elsewhere-world-of-five).
    """
    if count < _FEWEST:
        return None
    if keyed and (alone := _alone_in_groups(line[:2000], count)) is not None:
        return alone
    if not _DIFFER.search(line) and keyed and (odd := _odd_by_number(line[:2000], count)) is not None:
        return odd
    if not _DIFFER.search(line) and not (keyed and _BARE_LIST.search(line)):
        return None
    pairs = {int(found[1]): found[2] for found in _PAIRS.finditer(line[:2000])}
    if len(pairs) >= _FEWEST and set(pairs) in (set(range(count)), set(range(1, count))):
        return _alone(pairs)
    for parts in _lists(line[:2000], count):
        counted = Counter(parts)
        if len(parts) == count and len(counted) == 2 and min(counted.values()) == 1:
            return next(number for number, part in enumerate(parts) if counted[part] == 1)
    return None


def _alone_in_groups(line: str, count: int) -> int | None:
    """Of lists that share all ranks out among themselves, the only one of a list of its own (elsewhere-other-call)."""
    groups = [[int(number) for number in re.findall(r"\d+", found)] for found in _NUMBERS.findall(line)]
    members = sorted(number for group in groups for number in group)
    if len(groups) < 2 or members not in (list(range(count)), list(range(1, count))):
        return None
    single = [group[0] for group in groups if len(group) == 1]
    return single[0] if len(single) == 1 and len(groups) == 2 else None


def _odd_by_number(line: str, count: int) -> int | None:
    """Of values that stand at the ranks' numbers in braces, all of them or all but the first's: the only other one."""
    for found in _VALUES.finditer(line):
        pairs = [_KEYED.match(part.strip()) for part in (found[2] or "").split(",")]
        values = {int(pair[1]): pair[2].strip() for pair in pairs if pair}
        if len(values) == len(pairs) and set(values) in (set(range(count)), set(range(1, count))):
            return _alone(values)
    return None


def _lists(line: str, count: int) -> Iterator[list[str]]:
    """Possible values of each rank: in brackets, by the ranks' numbers, or between bars, commas and spaces."""
    for found in _VALUES.finditer(line):
        parts = [part.strip() for part in (found[1] or found[2]).split(",")]
        pairs = [_KEYED.match(part) for part in parts]
        if found[2] or all(pairs):
            if [int(pair[1]) for pair in pairs if pair] == list(range(count)):
                yield [pair[2].strip() for pair in pairs if pair]
            continue
        yield parts
    for found in _ROW.finditer(line):
        yield _BETWEEN.split(found[0])


def steps(processes: Sequence[Process]) -> Mapping[int, int]:
    """By rank, the last step that it printed; only ranks that count in the same words."""
    most = _STEP_LINES if len(processes) <= _MANY else _FEW_STEP_LINES
    by_rank = {process.rank.rank: _counted(process, most) for process in processes}
    shapes = Counter(shape for counted in by_rank.values() for shape in counted)
    if not shapes:
        return {}
    shape, ranks = max(shapes.items(), key=lambda item: (item[1], item[0]))
    if ranks < 2:
        return {}
    return {number: counted[shape] for number, counted in by_rank.items() if shape in counted}


def _counted(process: Process, most: int) -> dict[str, int]:
    """The shapes of lines that a process printed, each with the last value of its growing number."""
    rows: dict[str, list[tuple[int, ...]]] = {}
    for line in process.log.words_between(max(0, len(process.log.lines) - most)):
        numbers = _FIGURE.findall(line[:200])
        if not numbers or len(numbers) > 12:
            continue
        shape = _FIGURE.sub("#", line[:200])
        rows.setdefault(shape, []).append(tuple(int(float(number)) for number in numbers))
    return {shape: grown for shape, found in rows.items() if (grown := _growing(found)) is not None}


def _growing(rows: Sequence[tuple[int, ...]]) -> int | None:
    """The last value of the first number that grows from line to line; a single line counts by its last number."""
    width = min(len(row) for row in rows)
    for column in range(width):
        values = [row[column] for row in rows]
        if len(values) > 1 and all(later == former + 1 for former, later in pairwise(values)):
            return values[-1]
    return None
