"""Ranks weighed by signs: whom they speak for, and where that decides."""

from __future__ import annotations

from muster.diagnosis.launchers import processes_of
from muster.diagnosis.ranking import ranking
from muster.diagnosis.ranking.mentions import numbers
from muster.diagnosis.ranking.signs import Sign
from muster.diagnosis.ranking.weights import WEIGHTS
from muster.diagnosis.verdict import causes_of, judge
from muster.wire.verdicts import Evidence, RankEvidence, Verdict


def gang_with_another_value(odd: int, size: int = 4) -> Evidence:
    """One rank gives another value than the rest; the first one fails without a word of that."""
    failed = RankEvidence(rank=0, node="node-0", exit_code=1, ended_at=10.0, tail="width 64\nunusable\n")
    others = (
        RankEvidence(
            rank=rank,
            node="node-0",
            signal=15,
            expected=True,
            ended_at=11.0,
            tail=f"width {96 if rank == odd else 64}\n" + ("padded the last batch\n" if rank == odd else ""),
        )
        for rank in range(1, size)
    )
    return Evidence(ranks=(failed, *others), stop_reason="rank_failed")


def signs(evidence: Evidence, named: int | None) -> ranking.Signs:
    processes = processes_of(evidence.ranks)
    made = Verdict("exit_code", "", named)
    return ranking.signs_of(ranking.gang_of(processes), causes_of(evidence, processes), made)


def test_a_value_and_a_line_of_its_own_are_signs_of_the_one_rank_that_has_them() -> None:
    found = signs(gang_with_another_value(2), 0)
    assert {Sign.ONLY_OTHER_VALUE, Sign.ONLY_LINE_BUT_THE_FIRST, Sign.STOPPED} <= found[2]
    assert not found[1] & {Sign.ANOTHER_VALUE, Sign.LINE_OF_ITS_OWN}
    assert {Sign.RULES_CERTAIN, Sign.LEFT_WITH_CODE} <= found[0]


def test_many_signs_outweigh_a_bare_exit_code_and_the_rules_answer_is_the_second() -> None:
    made = judge(gang_with_another_value(2))
    assert (made.rank, made.confidence) == (2, "likely")
    assert made.second is not None and made.second.rank == 0


def test_of_more_ranks_than_can_be_weighed_in_time_the_rules_decide() -> None:
    evidence = gang_with_another_value(2, size=65)
    processes = processes_of(evidence.ranks)
    made = Verdict("exit_code", "", 0)
    assert ranking.suspect(made, causes_of(evidence, processes), processes) is None


def test_of_two_that_failed_alike_the_first_stays_unless_the_signs_are_overwhelming() -> None:
    alike = {0: ("exception", "E"), 1: ("exception", "E")}
    assert ranking.likelier({0: 0.15, 1: 0.85, None: 0.0}, 0, alike) is None
    assert ranking.likelier({0: 0.05, 1: 0.95, None: 0.0}, 0, alike) == 1
    assert ranking.likelier({0: 0.15, 1: 0.85, None: 0.0}, 0, {0: ("exception", "E")}) == 1


def test_a_rank_that_the_launcher_does_not_tell_of_is_left_to_the_rules() -> None:
    assert ranking.likelier({0: 0.9, None: 0.1}, 3, {}) is None


def test_likelihoods_add_up_to_one() -> None:
    likely = ranking.likelihoods(signs(gang_with_another_value(3), 0), WEIGHTS)
    assert abs(sum(likely.values()) - 1) < 1e-9
    assert max(likely, key=lambda rank: likely[rank]) == 3


def test_numbers_of_ranks_are_told_from_counts() -> None:
    assert numbers("worker 2 sent 7 rows in step 4") == ({2}, {2})
    assert numbers("stale heartbeat: hb/3 is 4.1 s old") == (set(), {3})
