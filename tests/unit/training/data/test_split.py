"""How an epoch is dealt out: each sample to one worker of one rank, and the same number of steps for every rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.training.data.split import Split

SPLITS = st.builds(Split, st.integers(0, 400), st.integers(1, 9), st.integers(1, 12), st.booleans())


@given(SPLITS, st.integers(1, 5))
def test_every_sample_is_dealt_out_once_and_ranks_have_the_same_steps(split: Split, workers: int) -> None:
    dealt: list[int] = []
    for rank in range(split.ranks):
        lanes = [split.lane(rank, worker, workers) for worker in range(workers)]
        assert sum(lane.count for lane in lanes) == split.steps
        for lane in lanes:
            assert sum(lane.sizes()) == lane.end - lane.begin
            assert all(1 <= size <= split.batch_size + 1 for size in lane.sizes())
            dealt += range(lane.begin, lane.end)
    assert sorted(dealt) == list(range(split.left - split.left_out))
    assert split.drop_last or split.left_out < split.ranks


@given(SPLITS, st.integers(1, 5), st.data())
def test_what_is_left_is_what_nobody_took(split: Split, workers: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(0, split.steps))
    shifted = [(1000, 1000 + split.left // 2), (5000, 5000 + split.left - split.left // 2)]
    numbers = [number for begin, end in shifted for number in range(begin, end)]
    taken = []
    for rank in range(split.ranks):
        lanes = [split.lane(rank, worker, workers) for worker in range(workers)]
        sizes, at = [lane.sizes() for lane in lanes], [lane.begin for lane in lanes]
        for batch in range(step):
            worker = batch % workers
            size = next(sizes[worker])
            taken += numbers[at[worker] : at[worker] + size]
            at[worker] += size
    left = [number for begin, end in split.after(shifted, step, workers) for number in range(begin, end)]
    assert left == sorted(left) and sorted(taken + left) == numbers


def test_many_lanes_and_much_that_was_cut_up_take_no_time_worth_mentioning() -> None:
    remaining = [(20 * number, 20 * number + 10) for number in range(8192)]
    split = Split(81920, 1024, 8)
    assert sum(end - begin for begin, end in split.after(remaining, 3, 8)) == 81920 - 1024 * 3 * 8
