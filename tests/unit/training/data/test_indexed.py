"""Samples that a function gives by their number."""

import numpy as np
import pytest

from muster.training.data import Shuffle, Stream, indexed_source, numpy_batches


def squares(length):
    return indexed_source(length, lambda index: {"square": np.int64(index * index)})


def read(stream):
    return [int(value) for batch in numpy_batches(stream, lambda sample: sample["square"]) for value in batch]


def test_every_sample_comes_once_over_all_ranks():
    found = [read(Stream(squares(37), 4, rank=rank, world_size=2, shuffle=Shuffle(3))) for rank in (0, 1)]
    assert sorted(found[0] + found[1]) == [index * index for index in range(37)]
    assert found[0] != sorted(found[0]), "they are mixed"


def test_it_goes_on_from_a_position():
    whole = read(Stream(squares(20), 4, shuffle=Shuffle(1)))
    stream = Stream(squares(20), 4, shuffle=Shuffle(1))
    batches = numpy_batches(stream, lambda sample: sample["square"])
    first = [int(value) for _, batch in zip(range(2), batches, strict=False) for value in batch]
    rest = Stream(squares(20), 4, shuffle=Shuffle(1))
    rest.restore(stream.state())
    assert first + read(rest) == whole


def test_a_sample_has_its_number_as_its_name():
    (batch,) = numpy_batches(Stream(squares(2), 2, shuffle=None))
    assert [sample["__key__"] for sample in batch] == ["0", "1"]


def test_none_at_all_is_refused():
    with pytest.raises(ValueError, match="length=0 must be 1 or more"):
        squares(0)
