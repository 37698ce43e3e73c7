"""Orders ranks by how likely each is to blame: signs are added up by weights that were fitted to failures."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.diagnosis.causes import Cause
from muster.diagnosis.gangs import likeness
from muster.diagnosis.launchers import Process
from muster.diagnosis.ranking import ends, mentions, sayings
from muster.diagnosis.ranking.signs import Sign
from muster.diagnosis.ranking.weights import WEIGHTS
from muster.wire.verdicts import Confidence, Verdict

ENOUGH = 0.75
"""The least probability at which the ranking overrules the rules."""
CLOSE = 0.35
"""The least probability at which it is named next to the rank that the rules name."""
_SURE = 0.9
_TOLD = 3
_FEWEST_RANKS = 2
_MOST_RANKS = 64
"""With more ranks than this the rules alone decide: a verdict must not be late."""
_NEVER_TOLD = (Sign.STOPPED, Sign.NO_STACK, Sign.FAILED_AS_ANOTHER)

Signs = Mapping[int | None, frozenset[Sign]]
"""The signs of each rank of a gang; under None those that nobody is to blame."""


@dataclass(frozen=True)
class Suspect:
    """The rank that the signs point to, where that is another one than the rules name."""

    process: Process
    likelihood: float
    why: str

    @property
    def is_likelier(self) -> bool:
        return self.likelihood >= ENOUGH


def suspect(made: Verdict, causes: Sequence[Cause], processes: Sequence[Process]) -> Suspect | None:
    """The likeliest rank by all signs, if the rules name another one or none."""
    gang = gang_of(processes)
    if not _FEWEST_RANKS <= len(gang) <= _MOST_RANKS:
        return None
    signs = signs_of(gang, causes, made)
    likely = likelihoods(signs, WEIGHTS)
    best = likelier(likely, made.rank, {cause.rank.rank: likeness(cause) for cause in causes})
    if best is None or likely[best] < CLOSE:
        return None
    return Suspect(gang[best], likely[best], _why(signs[best]))


def likelier(
    likely: Mapping[int | None, float], by_rules: int | None, failed: Mapping[int, tuple[str, str]]
) -> int | None:
    """The likeliest rank, if it is not the one that the rules name; `failed`: how ranks failed, by their numbers."""
    best = max(likely, key=lambda rank: likely[rank])
    if best is None or best == by_rules or by_rules not in likely:
        return None
    if by_rules is not None and failed.get(by_rules, "") == failed.get(best) and likely[best] < _SURE:
        # Of two that failed alike either is right.
        return None
    return best


def gang_of(processes: Sequence[Process]) -> dict[int, Process]:
    """The ranks that count, in the order of their numbers."""
    counted = [item for item in processes if item.rank.essential and item.rank.role != "launcher"]
    found: dict[int, Process] = {}
    for item in sorted(counted, key=lambda item: item.rank.rank):
        found.setdefault(item.rank.rank, item)
    return found


def signs_of(gang: Mapping[int, Process], causes: Sequence[Cause], made: Verdict) -> Signs:
    """All signs of each rank, including those of the rules."""
    failed: dict[int, Cause] = {}
    for cause in causes:
        if cause.rank.rank in gang:
            failed.setdefault(cause.rank.rank, cause)
    found: dict[int | None, set[Sign]] = defaultdict(set)
    for signs in (
        ends.ends(gang, failed),
        ends.places(gang, failed),
        mentions.mentions(gang, failed),
        mentions.last_words(gang),
        sayings.sayings(gang),
        sayings.progress(gang),
    ):
        for rank, sign in signs:
            found[rank].add(sign)
    if made.rank is not None:
        found[made.rank] |= _of_rules(found[made.rank], made)
    found[None] = _of_nobody(gang, list(failed.values()), made)
    return {rank: frozenset(found[rank]) for rank in (*gang, None)}


def likelihoods(signs: Signs, weights: Mapping[Sign, float]) -> dict[int | None, float]:
    """The probability that each rank is to blame; together they are 1."""
    scores = {rank: sum(weights.get(sign, 0.0) for sign in found) for rank, found in signs.items()}
    highest = max(scores.values())
    shares = {rank: math.exp(score - highest) for rank, score in scores.items()}
    total = sum(shares.values())
    return {rank: share / total for rank, share in shares.items()}


_BY_RULES: Mapping[Confidence, tuple[Sign, Sign]] = {
    "certain": (Sign.RULES_CERTAIN, Sign.NOBODY_CERTAIN),
    "likely": (Sign.RULES_LIKELY, Sign.NOBODY_LIKELY),
    "unsure": (Sign.RULES_UNSURE, Sign.NOBODY_UNSURE),
}


def _of_rules(signs: set[Sign], made: Verdict) -> set[Sign]:
    """The signs of the rank that the rules name."""
    found = {_BY_RULES[made.confidence][0]}
    speaks_of_others = bool(signs & {Sign.NAMES_ANOTHER, Sign.SAYS_A_NUMBER})
    if Sign.RAISED in signs and not speaks_of_others:
        found.add(Sign.RULES_FOR_A_LONE_EXCEPTION)
    if Sign.RAISED not in signs:
        found.add(Sign.RULES_THOUGH_IT_RAISED_NOTHING)
    if speaks_of_others:
        found.add(Sign.RULES_THOUGH_IT_NAMES_ANOTHER)
    if Sign.FIRST_RANK in signs:
        found.add(Sign.RULES_FOR_THE_FIRST_RANK)
    return found


def _of_nobody(gang: Mapping[int, Process], causes: Sequence[Cause], made: Verdict) -> set[Sign]:
    found = {Sign.NOBODY}
    if made.rank is None:
        found.add(_BY_RULES[made.confidence][1])
    if causes and len(causes) == len(gang) and len(set(map(likeness, causes))) == 1:
        found.add(Sign.NOBODY_ALL_ALIKE)
    if made.code == "rendezvous":
        found.add(Sign.NOBODY_WHILE_MEETING)
    if len(gang) == _FEWEST_RANKS:
        found.add(Sign.NOBODY_OF_TWO)
    return found


def _why(signs: frozenset[Sign]) -> str:
    """The heaviest of the signs, to follow "rank 2"."""
    heavy = sorted((sign for sign in signs if sign not in _NEVER_TOLD), key=lambda sign: -WEIGHTS.get(sign, 0.0))
    told: list[str] = []
    for sign in heavy:
        if WEIGHTS.get(sign, 0.0) > 0 and not any(said.endswith(sign.value.removeprefix("alone ")) for said in told):
            told.append(sign.value)
    return ", ".join(told[:_TOLD])
