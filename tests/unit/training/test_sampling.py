"""Every sample once, in the same order, wherever an epoch was interrupted and whoever goes on."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from muster.training import ResumableSampler


def ranks(length, batch, world, contiguous=False, state=None):
    found = []
    for rank in range(world):
        sampler = ResumableSampler(length, batch, rank=rank, world_size=world, seed=3, contiguous=contiguous)
        if state is not None:
            sampler.restore(state)
        found.append(sampler)
    return found


def taken(samplers, steps=None):
    """Indices step by step, of all ranks together."""
    rows = zip(*(itertools.islice(sampler, steps) for sampler in samplers), strict=True)
    return [[index for batch in row for index in batch] for row in rows]


def flat(rows):
    return [index for row in rows for index in row]


@given(
    length=st.integers(24, 90),
    worlds=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    batches=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stop=st.integers(0, 6),
    contiguous=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_after_a_change_of_the_world_every_sample_still_comes_at_most_once(length, worlds, batches, stop, contiguous):
    before = ranks(length, batches[0], worlds[0], contiguous)
    stop = min(stop, len(before[0]))
    state = before[0].state(stop)
    assert all(sampler.state(stop) == state for sampler in before)
    after = ranks(length, batches[1], worlds[1], contiguous, state)
    seen = flat(taken(before, stop))
    if after[0].epoch == 0:
        seen += flat(taken(after))
        assert length - len(seen) < batches[1] * worlds[1]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("contiguous", [False, True])
def test_the_same_world_goes_on_exactly_where_it_was(contiguous):
    whole = taken(ranks(50, 3, 2, contiguous))
    for stop in range(len(whole)):
        state = ranks(50, 3, 2, contiguous)[0].state(stop)
        assert taken(ranks(50, 3, 2, contiguous, state)) == whole[stop:]


def test_a_resumed_sampler_can_be_interrupted_again():
    whole = taken(ranks(50, 3, 2, contiguous=True))
    again = ranks(50, 3, 2, True, ranks(50, 3, 2, True)[0].state(2))
    assert taken(ranks(50, 3, 2, True, again[0].state(3))) == whole[5:]


def test_with_the_same_global_batch_the_number_of_ranks_changes_nothing():
    of_two = [sorted(row) for row in taken(ranks(50, 6, 2))]
    assert of_two == [sorted(row) for row in taken(ranks(50, 3, 4))] == [sorted(row) for row in taken(ranks(50, 12, 1))]


def test_a_rank_with_a_stretch_of_its_own_reads_on_in_it():
    sampler = ResumableSampler(
        40, 5, rank=1, world_size=2, contiguous=True, order=lambda epoch: __import__("torch").arange(40)
    )
    assert [index for batch in sampler for index in batch] == list(range(20, 40))


def test_epochs_differ_and_an_epoch_is_always_the_same():
    first = taken(ranks(50, 5, 1))
    (sampler,) = ranks(50, 5, 1)
    sampler.set_epoch(1)
    assert taken([sampler]) != first
    sampler.set_epoch(0)
    assert taken([sampler]) == first


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    (sampler,) = ranks(50, 5, 1, state=ranks(50, 5, 1)[0].state(10))
    assert (sampler.epoch, len(sampler)) == (1, 10)


def test_progress_is_counted_in_epochs_whatever_the_world_was():
    (one,) = ranks(40, 5, 1)
    assert one.progress(4) == 0.5
    (half, _) = ranks(40, 5, 2, state=one.state(4))
    assert (half.progress(0), half.progress(1)) == (0.5, 0.75)


def test_other_data_is_refused():
    with pytest.raises(ValueError, match="made with 50 samples, the data has 60 now"):
        ranks(60, 5, 1, state=ranks(50, 5, 1)[0].state(1))


def test_less_than_one_step_is_refused():
    with pytest.raises(ValueError, match="7 samples do not fill one step of 2 x 4"):
        ResumableSampler(7, 4, world_size=2)


def test_an_ordinary_dataset_gives_rows():
    rows = torch.arange(24).reshape(12, 2)
    loader = DataLoader(TensorDataset(rows), batch_sampler=ResumableSampler(12, 3))
    assert [batch.shape for (batch,) in loader] == [(3, 2)] * 4


def test_a_dataset_that_asks_for_it_hears_the_epoch():
    sampler = ResumableSampler(4, 2, with_epoch=True)
    sampler.set_epoch(7)
    assert [key for batch in sampler for key in batch] == [(7, index) for index in taken_once(4, 2, 7)]


def taken_once(length, batch, epoch):
    sampler = ResumableSampler(length, batch)
    sampler.set_epoch(epoch)
    return [index for batch in sampler for index in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_counts_for_itself_resumes_exactly_in_any_epoch(workers):
    """As in docs/training.md: three epochs, interrupted after every number of steps, with a loader that reads ahead."""

    def train(state, stop):
        sampler, seen = ResumableSampler(10, 2, seed=1), []
        loader = DataLoader(list(range(10)), batch_sampler=sampler, num_workers=workers)
        if state:
            sampler.restore(state)
        while sampler.epoch < 3:
            for batch in sampler.counted(loader):
                seen.append(batch.tolist())
                if len(seen) == stop:
                    return seen, sampler.state()
            sampler.set_epoch(sampler.epoch + 1)
        return seen, None

    whole, _ = train(None, None)
    for stop in range(1, 15) if not workers else (7,):
        before, state = train(None, stop)
        assert before + train(state, None)[0] == whole


def test_the_step_of_the_whole_training_is_refused():
    sampler = ResumableSampler(10, 2)
    with pytest.raises(ValueError, match=r"step=7 is not the number of batches since .* \(0 to 5\).*leave it out"):
        sampler.state(7)
    sampler.restore(sampler.state(2))
    drawing = iter(sampler)
    next(drawing)
    with pytest.raises(ValueError, match=r"step=3 is not .* \(0 to 1\)"):
        sampler.state(3)
    with pytest.raises(ValueError, match=r"through `sampler.counted"):
        sampler.state()
    counting = sampler.counted(sampler)
    next(counting)
    with pytest.raises(ValueError, match=r"step=2 is not .* \(1\)"):
        sampler.progress(2)
    assert sampler.state() == sampler.state(1)


def test_an_epoch_that_was_gone_into_by_a_restore_is_not_begun_again():
    """A loop that calls set_epoch before every epoch, as with PyTorch's own sampler, keeps its place."""
    first = ResumableSampler(10, 2)
    sampler = ResumableSampler(10, 2)
    sampler.restore(first.state(3))
    sampler.set_epoch(0)
    assert list(sampler) == list(first)[3:]
    sampler.set_epoch(0)
    assert len(sampler) == 5


def test_a_batch_that_grows_in_an_epoch_repeats_and_skips_nothing():
    sampler = ResumableSampler(40, 4)
    data = DataLoader(TensorDataset(torch.arange(40)), batch_sampler=sampler)
    seen = []
    for (batch,) in itertools.islice(sampler.counted(data), 3):
        seen.append(batch.tolist())
    sampler.set_batch_size(7)
    seen += [batch.tolist() for (batch,) in sampler.counted(data)]
    assert [len(batch) for batch in seen] == [4, 4, 4, 7, 7, 7, 7]
    assert sorted(flat(seen)) == list(range(40)) and sampler.epoch == 0


@pytest.mark.parametrize("size", [0, -3, 41])
def test_a_batch_that_the_data_cannot_fill_is_refused(size):
    with pytest.raises(ValueError, match=f"batch_size={size}: 40 samples"):
        ResumableSampler(40, 4).set_batch_size(size)


@pytest.mark.parametrize("wrong", [{"rank": 2, "world_size": 2}, {"rank": -1}, {"batch_size": 0}])
def test_a_rank_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="ranks count from 0 to below world_size"):
        ResumableSampler(64, **{"batch_size": 4, **wrong})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([1, 2, 3], 1), "length is list; give len.dataset."),
        ((64, 8.0), "batch_size is float; give a whole number"),
        ((64, "8"), "batch_size is str"),
    ],
)
def test_other_than_whole_numbers_are_refused(given, said):
    with pytest.raises(TypeError, match=said):
        ResumableSampler(*given)


def test_an_epoch_is_a_whole_number():
    with pytest.raises(TypeError, match="epoch is float; give a whole number"):
        ResumableSampler(8, 2).set_epoch(1.0)


@pytest.mark.parametrize("state", [None, {}, {"step": 5}])
def test_what_is_no_position_is_refused(state):
    with pytest.raises(TypeError, match=r"is no position: give what `state..` returned"):
        ResumableSampler(64, 8).restore(state)
