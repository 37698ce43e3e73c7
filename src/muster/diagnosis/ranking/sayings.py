"""Signs from output, compared line by line: by the shapes of lines, by values in lines of one shape."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import islice

from muster.diagnosis import differences
from muster.diagnosis.launchers import Process
from muster.diagnosis.log import is_noise
from muster.diagnosis.ranking.signs import Sign

_NUMBER = re.compile(r"(?<![\w.])(?=[a-f]{0,40}\d)[0-9a-f]{6,64}(?![\w.])|\d+(?:\.\d+)?")
_TIME = re.compile(r"\d{1,4}[-/:]\d\d[-/:]\d\d[\d.,:TZ+ ]{0,20}")
_FEWEST = 3
_MOST_LINES = 20
_LONG_NUMBER = 5

_Rows = Mapping[int, Mapping[str, str]]
"""By rank, the lines that it printed, by their shapes."""


def sayings(gang: Mapping[int, Process]) -> Iterable[tuple[int, Sign]]:
    """Ranks with lines that no other printed, without lines that all others printed, or with another value."""
    if len(gang) < _FEWEST:
        return
    lines = {rank: _lines(process, _MOST_LINES) for rank, process in gang.items()}
    rows = {rank: {_shape(line): line for line in found} for rank, found in lines.items()}
    printed_by = Counter(shape for found in rows.values() for shape in found)
    own = [rank for rank, found in rows.items() if any(printed_by[shape] == 1 for shape in found)]
    yield from ((rank, Sign.LINE_OF_ITS_OWN) for rank in own)
    if len(own) == 1:
        yield own[0], Sign.ONLY_LINE_OF_ITS_OWN
    if len(rest := [rank for rank in own if rank]) == 1:
        yield rest[0], Sign.ONLY_LINE_BUT_THE_FIRST
    lacking = _lacking(rows, printed_by)
    yield from ((rank, Sign.LACKS_A_LINE) for rank in lacking)
    if len(lacking) == 1:
        yield next(iter(lacking)), Sign.ALONE_LACKS_A_LINE
    exact = {rank: dict.fromkeys((_own_masked(line, rank) for line in found), "") for rank, found in lines.items()}
    if len(otherwise := _lacking(exact, Counter(line for found in exact.values() for line in found))) == 1:
        yield next(iter(otherwise)), Sign.ALONE_SAYS_OTHERWISE
    yield from _values(rows)
    silent = [rank for rank, process in gang.items() if not process.log.lines]
    if len(silent) == 1:
        yield silent[0], Sign.SAID_NOTHING


def progress(gang: Mapping[int, Process]) -> Iterable[tuple[int, Sign]]:
    """Ranks that are behind or ahead of all the others, by the steps that they print."""
    steps = differences.steps(list(gang.values()))
    if len(steps) < max(2, len(gang) - 1) or min(steps.values()) == max(steps.values()):
        return
    for extreme, sign in ((min(steps.values()), Sign.BEHIND), (max(steps.values()), Sign.AHEAD)):
        there = [rank for rank, step in steps.items() if step == extreme]
        if len(there) == 1:
            yield there[0], sign


def odd(found: Mapping[int, Hashable]) -> int | None:
    """The only rank that differs from all the others, which agree."""
    counted = Counter(found.values())
    if len(counted) != 2 or min(counted.values()) != 1 or max(counted.values()) < 2:
        return None
    return next(rank for rank, value in found.items() if counted[value] == 1)


def _lines(process: Process, most: int) -> list[str]:
    """The first and the last lines that it meant for people, up to the exception with which it ended."""
    log = process.log
    end = log.raised[-1].begin if log.raised else len(log.lines)
    inside = {index for raised in log.raised for index in range(raised.begin, raised.end)}
    backwards = (i for i in range(end - 1, -1, -1) if i not in inside and not is_noise(log.lines[i]))
    last = [log.lines[index] for index in islice(backwards, most)]
    return [*log.first_words(most, end), *reversed(last)]


def _values(rows: _Rows) -> Iterable[tuple[int, Sign]]:
    """Ranks that gave another value than all the others in lines of a shape that all printed."""
    differ = set(_with_other_values(rows))
    yield from ((rank, Sign.ANOTHER_VALUE) for rank in differ)
    if len(differ) == 1:
        yield next(iter(differ)), Sign.ONLY_OTHER_VALUE
    rest = {rank: found for rank, found in rows.items() if rank}
    if _FEWEST <= len(rest) < len(rows):
        only = {rank: {s: line for s, line in found.items() if s not in rows[0]} for rank, found in rest.items()}
        yield from ((rank, Sign.OTHER_VALUE_BUT_THE_FIRST) for rank in set(_with_other_values(only)))


def _with_other_values(rows: _Rows) -> Iterable[int]:
    for shape in set.intersection(*map(set, rows.values())):
        numbers = {rank: _NUMBER.findall(_TIME.sub("", found[shape][:300])) for rank, found in rows.items()}
        for column in range(min(map(len, numbers.values()))):
            one = odd({rank: found[column] for rank, found in numbers.items()})
            if one is not None:
                yield one


def _lacking(rows: _Rows, printed_by: Counter[str]) -> set[int]:
    """Ranks without some line that all the others printed."""
    common = [shape for shape, count in printed_by.items() if count == len(rows) - 1]
    return {rank for shape in common for rank, found in rows.items() if shape not in found}


def _shape(line: str) -> str:
    return _NUMBER.sub("#", _TIME.sub("", line[:300]))


def _own_masked(line: str, rank: int) -> str:
    """A line without the rank's own number, and without parts that always differ."""
    return _NUMBER.sub(
        lambda found: "#" if found[0] == str(rank) or len(found[0]) > _LONG_NUMBER else found[0],
        _TIME.sub("", line[:300]),
    )
