"""Where a rank stands, how values are reduced, and what is refused by name."""

from __future__ import annotations

import pytest

from muster.horovod_compat.places import Membership, Place, place
from muster.horovod_compat.reduction import Adasum, Average, Sum, check_adasum, chosen, in_pairs, shares
from muster.horovod_compat.refusals import (
    ProcessSet,
    add_process_set,
    check_process_set,
    elastic,
    global_process_set,
    run,
    start_timeline,
)
from muster.runtime.ranks import RankInfo


def test_a_rank_stands_among_those_with_its_number_on_other_nodes() -> None:
    everybody = [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert place(RankInfo(3, 4, 1, 2, "mpi"), everybody) == Place(3, 4, 1, 2, 1, 2, True)
    assert place(RankInfo(0, 4, 0, 2, "mpi"), everybody) == Place(0, 4, 0, 2, 0, 2, True)


def test_nodes_of_different_size_are_known() -> None:
    uneven = [(0, 2), (1, 2), (0, 1)]
    assert place(RankInfo(1, 3, 1, 2, "mpi"), uneven) == Place(1, 3, 1, 2, 0, 1, False)


def test_calls_before_init_say_so() -> None:
    with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
        Membership().rank()
    assert not Membership().is_initialized()


def test_the_older_word_for_an_operation_counts() -> None:
    assert chosen(None, None) == Average
    assert chosen(Adasum, None) == Adasum
    with pytest.warns(DeprecationWarning):
        assert chosen(None, False) == Sum
    with pytest.raises(ValueError, match="both"):
        chosen(Sum, True)
    with pytest.raises(ValueError, match=r"hvd\.Average"):
        chosen(17, None)


def test_adasum_needs_a_power_of_two() -> None:
    check_adasum(8)
    with pytest.raises(NotImplementedError, match="here are 6"):
        check_adasum(6)


def test_neighbours_are_combined_first() -> None:
    assert in_pairs(["a", "b", "c", "d"], lambda one, other: f"({one}{other})") == "((ab)(cd))"


def test_the_first_ranks_get_the_rows_that_are_left_over() -> None:
    assert shares(7, 3) == [3, 2, 2]
    assert shares(1, 3) == [1, 0, 0]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda: ProcessSet([0]), "hvd.ProcessSet"),
        (lambda: add_process_set([0]), "hvd.add_process_set"),
        (lambda: start_timeline("timeline.json"), "hvd.start_timeline"),
        (lambda: elastic.TorchState(), "hvd.elastic.TorchState"),
        (lambda: run(print, np=2), "horovod.run"),
        (lambda: check_process_set(object()), "process_set"),
    ],
)
def test_what_is_not_there_is_refused_by_its_name(use: object, name: str) -> None:
    assert callable(use)
    with pytest.raises(NotImplementedError, match=f"^{name} is not in horovod-compat") as refused:
        use()
    assert "horovod-torch" in str(refused.value)


def test_all_ranks_are_a_process_set() -> None:
    check_process_set(None)
    check_process_set(global_process_set)
