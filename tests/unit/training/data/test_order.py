"""The order of an epoch: every sample once, the same for everybody, and as well mixed as the documents say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.training.data.order import EpochOrder, Shuffle, order_name

COUNTS = st.lists(st.integers(0, 90), min_size=1, max_size=12)
SHUFFLES = st.none() | st.builds(
    Shuffle, seed=st.integers(-5, 2**70), shards=st.integers(1, 9), run=st.integers(1, 20), pool=st.integers(1, 99)
)


def places(order: EpochOrder, begin: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    pools = order.pools(begin, order.length if end is None else end)
    return [place for pool in pools for place in zip(pool.shards.tolist(), pool.samples.tolist(), strict=True)]


@given(COUNTS, SHUFFLES, st.integers(0, 3), st.booleans(), st.data())
def test_every_sample_comes_once_and_any_part_can_be_had_alone(
    counts: list[int], shuffle: Shuffle | None, epoch: int, whole: bool, data: st.DataObject
) -> None:
    order = EpochOrder(counts, shuffle, epoch, whole)
    everything = places(order)
    assert sorted(everything) == [(shard, number) for shard, count in enumerate(counts) for number in range(count)]
    begin = data.draw(st.integers(0, order.length))
    end = data.draw(st.integers(begin, order.length))
    assert places(order, begin, end) == everything[begin:end]


def test_without_a_shuffle_it_is_the_order_of_the_files() -> None:
    found = places(EpochOrder([3, 0, 2], None, 5))
    assert found == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]


def test_the_order_is_pinned() -> None:
    """A checkpoint of today must mean the same tomorrow, with another NumPy too."""
    found = places(EpochOrder([5, 4, 3], Shuffle(seed=7, shards=2, run=2, pool=6), 1))
    assert found == PINNED


PINNED = [(1, 2), (1, 1), (1, 0), (1, 3), (2, 2), (2, 1), (0, 1), (0, 3), (0, 0), (0, 2), (0, 4), (2, 0)]


def test_each_epoch_and_each_seed_has_an_order_of_its_own() -> None:
    counts = [50] * 8
    orders = [places(EpochOrder(counts, Shuffle(seed), epoch)) for seed in (0, 1) for epoch in (0, 1)]
    assert all(a != b for n, a in enumerate(orders) for b in orders[:n])


def test_how_well_it_is_mixed() -> None:
    """The figures of docs/data-for-training.md, for 200 shards of 1,000 samples that lie sorted by their class."""
    counts = [1000] * 200
    order = EpochOrder(counts, Shuffle(seed=3), 0)
    found = np.array(places(order))
    # Classes in a batch, of one class in each shard: 16 shards at a time are mixed.
    batches = found[: len(found) // 256 * 256, 0].reshape(-1, 256)
    classes = np.mean([len(np.unique(batch)) for batch in batches])
    assert 15 < classes < 20
    # Two samples that lie side by side in a shard are hardly ever one behind the other.
    number = found[:, 0] * 1000 + found[:, 1]
    assert np.mean(np.diff(number) == 1) < 1 / 2000
    # How far a sample is from where its shard begins, in shards: spread over all that are mixed.
    position = np.empty(len(found))
    position[number] = np.arange(len(found))
    spread = position.reshape(200, 1000).std(axis=1).mean() / 1000
    assert 4.0 < spread < 5.2  # 16 / sqrt(12) = 4.6


def test_samples_mixed_before_they_are_packed_are_mixed_completely() -> None:
    """As `muster data pack` does it: then each batch of 256 has as many of 1,000 classes as by pure chance (226)."""
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(1000), 200)).reshape(200, 1000)
    found = np.array(places(EpochOrder([1000] * 200, Shuffle(seed=3), 0)))
    labels = classes[found[:, 0], found[:, 1]][: len(found) // 256 * 256].reshape(-1, 256)
    assert np.mean([len(np.unique(batch)) for batch in labels]) == pytest.approx(226, abs=1)


def test_few_shards_are_in_use_at_a_time() -> None:
    order = EpochOrder([1000] * 200, Shuffle(), 0)
    used = [len(np.unique(pool.shards)) for pool in order.pools(0, order.length)]
    assert max(used) <= 16 + 4096 // 1000 + 2


def test_a_shuffle_of_nothing_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"Shuffle\(run=0\) must be 1 or more"):
        Shuffle(run=0)


def test_other_shards_or_another_shuffle_are_another_order() -> None:
    names = {
        order_name(counts, shuffle, whole)
        for counts in ([1, 2], [2, 1], [3])
        for shuffle in (None, Shuffle(), Shuffle(1), Shuffle(run=3))
        for whole in (False, True)
    }
    assert len(names) == 24
