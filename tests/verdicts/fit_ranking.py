"""Fits the weights of the ranking of ranks: `python -m tests.verdicts.fit_ranking` prints them. With `--without s t`
it prints how often the right rank is named in the gangs of these groups, by weights that were fitted without them.

What the rules say is one of the signs. Of a failure that they were mended with, they say the truth, so that it is not
their answer of today that counts, but the one from before: `first_answers.json` has it for the groups that were scored
before anything was mended with them. A conditional logit, by Newton's method: the likelihood of the guilty rank among
all ranks of its gang and nobody.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.verdicts.report import HERE, as_seen, is_right, judged, load

from muster.diagnosis.gangs import likeness
from muster.diagnosis.launchers import processes_of
from muster.diagnosis.ranking import ranking
from muster.diagnosis.ranking.signs import Sign
from muster.diagnosis.verdict import causes_of
from muster.wire.verdicts import Verdict

FIRST_ANSWERS = HERE / "first_answers.json"
_PENALTY = 1.0
_FEWEST = 3
"""A sign that fewer gangs show says too little to be weighed."""
_ROUNDS = 25
_CLOSE_ENOUGH = 1e-4

Weights = Mapping[Sign, float]


@dataclass(frozen=True)
class Gang:
    """One recorded gang: the signs of its ranks, and who is to blame."""

    case: dict[str, Any]
    rules: Verdict
    signs: ranking.Signs
    alike: Mapping[int, tuple[str, str]]

    @property
    def group(self) -> str:
        return str(self.case["name"]).partition("-")[0]

    def is_right(self, rank: int | None) -> bool:
        return is_right(self.case, rank)


def main() -> None:
    gangs = recorded()
    without = sys.argv[sys.argv.index("--without") + 1 :] if "--without" in sys.argv else []
    weights = fitted([gang for gang in gangs if gang.group not in without])
    if not without:
        for sign in Sign:
            if sign in weights:
                print(f"    Sign.{sign.name}: {weights[sign]:+.2f},")
        return
    for name in without:
        asked = [gang for gang in gangs if gang.group == name]
        before = [gang.is_right(gang.rules.rank) for gang in asked]
        after = [gang.is_right(answer(gang, weights)) for gang in asked]
        better = sum(new and not old for old, new in zip(before, after, strict=True))
        worse = sum(old and not new for old, new in zip(before, after, strict=True))
        print(
            f"{name}-: {sum(before)} of {len(asked)} by the rules, {sum(after)} with the ranking (+{better} -{worse})"
        )


def recorded() -> list[Gang]:
    first = json.loads(FIRST_ANSWERS.read_text(encoding="utf-8"))
    found = []
    for case in load(HERE / "learning"):
        if case["num_ranks"] < 2:
            continue
        evidence = as_seen(case)
        processes = processes_of(evidence.ranks)
        causes = causes_of(evidence, processes)
        gang = ranking.gang_of(processes)
        rules = Verdict(message="", **first[case["name"]]) if case["name"] in first else judged(case)
        alike = {cause.rank.rank: likeness(cause) for cause in causes}
        found.append(Gang(case, rules, ranking.signs_of(gang, causes, rules), alike))
    return found


def answer(gang: Gang, weights: Weights) -> int | None:
    """The rank that a verdict names: that of the rules, or a likelier one."""
    likely = ranking.likelihoods(gang.signs, weights)
    best = ranking.likelier(likely, gang.rules.rank, gang.alike)
    return best if best is not None and likely[best] >= ranking.ENOUGH else gang.rules.rank


def fitted(gangs: Sequence[Gang]) -> dict[Sign, float]:
    """The weights that make the guilty ranks likeliest, drawn a little to zero."""
    shown = Counter(sign for gang in gangs for sign in set().union(*gang.signs.values()))
    signs = [sign for sign in Sign if shown[sign] >= _FEWEST]
    place = {sign: index for index, sign in enumerate(signs)}
    rows = []
    for gang in gangs:
        guilty = [gang.is_right(rank) for rank in gang.signs]
        if any(guilty):
            rows.append(([[place[s] for s in found if s in place] for found in gang.signs.values()], guilty))
    weights = [0.0] * len(signs)
    for _ in range(_ROUNDS):
        step = _step(rows, weights)
        largest = max(map(abs, step))
        weights = [weight + change * min(1.0, 2 / largest) for weight, change in zip(weights, step, strict=True)]
        if largest < _CLOSE_ENOUGH:
            break
    return dict(zip(signs, weights, strict=True))


def _step(rows: Sequence[tuple[list[list[int]], list[bool]]], weights: list[float]) -> list[float]:
    count = len(weights)
    slope = [-_PENALTY * weight for weight in weights]
    bend = [[_PENALTY if row == column else 0.0 for column in range(count)] for row in range(count)]
    for found, guilty in rows:
        scores = [sum(weights[sign] for sign in signs) for signs in found]
        all_of = _shares(scores, [True] * len(scores))
        those = _shares(scores, guilty)
        mean: defaultdict[int, float] = defaultdict(float)
        for signs, share, wanted in zip(found, all_of, those, strict=True):
            for sign in signs:
                slope[sign] += wanted - share
                mean[sign] += share
                for other in signs:
                    bend[sign][other] += share
        for sign, part in mean.items():
            for other, rest in mean.items():
                bend[sign][other] -= part * rest
    return _solved(bend, slope)


def _shares(scores: list[float], counted: list[bool]) -> list[float]:
    highest = max(score for score, counts in zip(scores, counted, strict=True) if counts)
    shares = [math.exp(score - highest) if counts else 0.0 for score, counts in zip(scores, counted, strict=True)]
    return [share / sum(shares) for share in shares]


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """By elimination; the matrix is symmetric and positive."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for pivot in range(len(rows)):
        for below in range(pivot + 1, len(rows)):
            if factor := rows[below][pivot] / rows[pivot][pivot]:
                rows[below] = [a - factor * b for a, b in zip(rows[below], rows[pivot], strict=True)]
    found = [0.0] * len(rows)
    for index in range(len(rows) - 1, -1, -1):
        known = sum(rows[index][later] * found[later] for later in range(index + 1, len(rows)))
        found[index] = (rows[index][-1] - known) / rows[index][index]
    return found


if __name__ == "__main__":
    main()
