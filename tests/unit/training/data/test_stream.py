"""A stream that is stopped and gone on with: every sample once in an epoch, whatever the number of ranks."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest
from tests.unit.training.data.shardsets import write_tars

from muster.training.data import Sample, Shuffle, Source, Stream, StreamState, numpy_batches, open_source, stacked

SHUFFLE = Shuffle(seed=5, shards=4, run=4, pool=64)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("shards")
    write_tars(folder, [37, 12, 60, 1, 45, 88, 20, 50])
    return open_source(folder)


def walked(
    source: Source, state: StreamState | None, ranks: int, workers: int, batch: int, steps: int
) -> tuple[list[str], StreamState, int]:
    """The keys that all ranks take in so many steps, where they are then, and the steps of the whole rest."""
    keys: list[str] = []
    states: list[StreamState] = []
    for rank in range(ranks):
        stream = Stream(source, batch, rank=rank, world_size=ranks, shuffle=SHUFFLE)
        if state is not None:
            stream.restore(state)
        left = len(stream)
        plan = stream.plan(workers)
        lanes = [plan.batches(worker, str_key) for worker in range(workers)]
        counted = stream.counted(lanes[step % workers] for step in range(min(steps, left)))
        for _ in range(min(steps, left)):
            keys += next(next(counted))
        states.append(stream.state())
    assert all(found == states[0] for found in states)
    return keys, states[0], left


def str_key(sample: Sample) -> str:
    return str(sample["__key__"])


@pytest.mark.parametrize("seed", range(20))
def test_stopped_at_random_points_with_other_ranks_every_sample_comes_exactly_once(source: Source, seed: int) -> None:
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    state: StreamState | None = None
    while state is None or (state["epoch"] == 0 and state["remaining"]):
        ranks, workers, batch = chance.randint(1, 6), chance.randint(1, 4), chance.randint(1, 9)
        left = sum(end - begin for begin, end in state["remaining"]) if state else len(source)
        ranks = min(ranks, left)
        steps = chance.randint(1, 12)
        keys, state, _ = walked(source, state, ranks, workers, batch, steps)
        state = json.loads(json.dumps(state))
        seen.update(keys)
    assert len(seen) == len(source) and set(seen.values()) == {1}


def test_a_loop_that_is_left_and_entered_again_goes_on(source: Source) -> None:
    stream = Stream(source, 10, shuffle=SHUFFLE)
    first = [sample["__key__"] for _, batch in zip(range(7), numpy_batches(stream), strict=False) for sample in batch]
    rest = [sample["__key__"] for batch in numpy_batches(stream) for sample in batch]
    assert stream.epoch == 1 and len({*first, *rest}) == len(first) + len(rest) == len(source)
    whole = Stream(source, 10, shuffle=SHUFFLE)
    assert [sample["__key__"] for batch in numpy_batches(whole) for sample in batch] == [*first, *rest]


def test_the_next_epoch_has_another_order_and_other_seeds(source: Source) -> None:
    stream = Stream(source, 10, shuffle=SHUFFLE)
    epochs = [[sample for batch in numpy_batches(stream) for sample in batch] for _ in range(2)]
    seeds = [{sample["__key__"]: sample["__seed__"] for sample in epoch} for epoch in epochs]
    assert [s["__key__"] for s in epochs[0]] != [s["__key__"] for s in epochs[1]]
    assert seeds[0].keys() == seeds[1].keys() and seeds[0] != seeds[1]


def test_a_samples_seed_depends_neither_on_ranks_nor_on_workers(source: Source) -> None:
    def seeds(ranks: int, workers: int) -> dict[object, object]:
        found = {}
        for rank in range(ranks):
            plan = Stream(source, 8, rank=rank, world_size=ranks, shuffle=SHUFFLE).plan(workers)
            for worker in range(workers):
                for batch in plan.batches(worker, lambda sample: sample):
                    found.update({sample["__key__"]: sample["__seed__"] for sample in batch})
        return found

    assert seeds(1, 1) == seeds(3, 2)


def test_drop_last_leaves_out_what_fills_no_step_and_all_batches_are_full(source: Source) -> None:
    stream = Stream(source, 10, shuffle=SHUFFLE, drop_last=True)
    sizes = [len(batch) for batch in numpy_batches(stream)]
    assert sizes == [10] * (len(source) // 10)


def test_fewer_samples_than_ranks_are_left_out(source: Source) -> None:
    stream = Stream(source, 5, rank=3, world_size=4, shuffle=SHUFFLE)
    state = stream.state()
    stream.restore({**state, "remaining": [(0, 3)]})
    assert stream.epoch == 1


def test_a_position_in_another_order_is_refused(source: Source) -> None:
    state = Stream(source, 5, shuffle=SHUFFLE).state()
    with pytest.raises(ValueError, match="another order"):
        Stream(source, 5, shuffle=Shuffle(seed=6)).restore(state)


def test_what_cannot_be_is_refused(source: Source) -> None:
    with pytest.raises(ValueError, match="rank=4 must be 0 to 3"):
        Stream(source, 5, rank=4, world_size=4)
    with pytest.raises(ValueError, match="batch_size=0"):
        Stream(source, 0)
    with pytest.raises(ValueError, match="do not fill one step of 1000 x 4"):
        Stream(source, 4, world_size=1000)


def test_decoded_batches_are_stacked_part_by_part(source: Source) -> None:
    def decode(sample: Sample) -> dict[str, object]:
        image = np.frombuffer(sample["jpg"], np.uint8)[:5]  # type: ignore[arg-type]
        return {"image": image, "label": int(sample["cls"]), "key": sample["__key__"]}  # type: ignore[arg-type]

    batch = next(numpy_batches(Stream(source, 6, shuffle=None), decode))
    assert batch["image"].shape == (6, 5) and batch["label"].tolist() == list(range(6))
    assert batch["key"][5] == "000005"
    assert stacked([(1, "a"), (2, "b")])[1] == ["a", "b"]


def test_an_error_of_decoding_comes_out_where_the_batch_is_asked_for(source: Source) -> None:
    def decode(sample: Sample) -> int:
        if sample["__key__"] == "000020":
            raise ValueError("000020 cannot be decoded")
        return 1

    taken = 0
    stream = Stream(source, 6, shuffle=None)
    with pytest.raises(ValueError, match="000020"):
        for _ in numpy_batches(stream, decode):
            taken += 1
    assert taken == 3
    assert stream.state()["remaining"] == [(18, len(source))]
