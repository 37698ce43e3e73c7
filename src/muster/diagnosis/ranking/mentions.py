"""Signs from mentions: which ranks name which, by numbers of ranks in their words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from muster.diagnosis.causes import Cause
from muster.diagnosis.launchers import Process
from muster.diagnosis.meant import REFERENCE
from muster.diagnosis.ranking.signs import Sign

_TIME = re.compile(r"\d{1,4}[-/:]\d\d[-/:]\d\d[\d.,:TZ+ ]{0,20}")
_NAMED = re.compile(
    r"(?i)\b(?:rank|worker|peer|process|proc|client|trainer|member|task|node|host|actor|replica|agent|stage"
    r"|neighbou?r|party|site|server|w|r)s?\W{0,4}_?(\d{1,6})(?![\w.%]|:\d)"
)
_BARE = re.compile(
    r"(?<![\w.:])#?(\d{1,5})(?![\w%]|[.:,/]\d| ?(?:of|s|ms|sec\w*|min\w*|steps?|ranks|workers|times|attempts|bytes"
    r"|rows|peers)\b)|(?<=[A-Za-z_/-])(\d{1,4})(?!\w)"
)
_COUNTS = re.compile(
    r"(?i)(?:\b(?:steps?|epochs?|iter\w*|rounds?|batch|attempts?|phase|version|v|line|port|code|after|within|only|got"
    r"|need\w*|expected|than|have|has|had|errno|seq|size|count|total|status|exit|tag|for|utf|faults?|errors?|signal)[\W_]{0,3}|=)$"
)
_LIST = re.compile(r"[\[({]\s?(\d{1,5}(?:, ?\d{1,5}){1,255})\s?[\])}]")
_BEFORE = 14
_REFERS = 50
_MOST_CHARS = 600
_LAST_WORDS = 3
_FEWEST = 3


def mentions(gang: Mapping[int, Process], causes: Mapping[int, Cause]) -> Iterable[tuple[int, Sign]]:
    """Which ranks those that failed name, and which ones name others."""
    by_name: Counter[int] = Counter()
    by_number: Counter[int] = Counter()
    for speaker, cause in causes.items():
        named, said = numbers(cause.headline)
        named, said = named & gang.keys() - {speaker}, said & gang.keys() - {speaker}
        by_name.update(named)
        by_number.update(said - named)
        if named | said:
            yield speaker, Sign.NAMES_ANOTHER if named else Sign.SAYS_A_NUMBER
    for rank in gang:
        if by_name[rank]:
            yield rank, Sign.NAMED
        elif by_number[rank]:
            yield rank, Sign.NUMBER_SAID
    if causes:
        yield from _of_first(gang, next(iter(causes.values())))


def last_words(gang: Mapping[int, Process]) -> Iterable[tuple[int, Sign]]:
    """Which ranks appear in the last words of others."""
    said = {
        other
        for rank, process in gang.items()
        for line in process.log.last_words(_LAST_WORDS)
        for other in numbers(line)[0] - {rank}
    }
    return ((rank, Sign.IN_LAST_WORDS) for rank in said & gang.keys())


def _of_first(gang: Mapping[int, Process], first: Cause) -> Iterable[tuple[int, Sign]]:
    speaker = first.rank.rank
    named, said = (found & gang.keys() - {speaker} for found in numbers(first.headline))
    if len(named) == 1:
        yield next(iter(named)), Sign.ONLY_ONE_NAMED
    elif not named and len(said) == 1:
        yield next(iter(said)), Sign.ONLY_NUMBER_SAID
    for found in _LIST.finditer(first.headline[:_MOST_CHARS]):
        listed = set(map(int, re.findall(r"\d+", found[1])))
        absent = gang.keys() - listed - {speaker}
        if len(gang) >= _FEWEST and len(absent) == 1 and listed <= gang.keys():
            yield next(iter(absent)), Sign.NOT_IN_THE_LIST


def numbers(line: str) -> tuple[set[int], set[int]]:
    """Numbers after a word for a rank, and others that are not known to count anything."""
    bare = _TIME.sub("", line[:_MOST_CHARS])
    named = {
        int(found[1])
        for found in _NAMED.finditer(bare)
        # A number for comparison is not the subject of the complaint.
        if not REFERENCE.search(bare[max(0, found.start() - _REFERS) : found.start()])
    }
    said = {
        int(found[1] or found[2])
        for found in _BARE.finditer(bare)
        if not _COUNTS.search(bare[max(0, found.start() - _BEFORE) : found.start()])
    }
    return named, said
