"""Numbers of every library become plain ones."""

from __future__ import annotations

import json
import math
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from muster.runtime.values import jsonable, plain, plain_list, restore


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (numpy.float64(0.5), 0.5),
        (numpy.float32(0.5), 0.5),
        (numpy.int64(3), 3),
        (numpy.bool_(True), True),
        (numpy.array(2.5), 2.5),
        (numpy.array([2.5]), 2.5),
        (torch.tensor(1.5), 1.5),
        (torch.tensor([4]), 4),
        (Level.HIGH, 3),
        (Fraction(1, 2), 0.5),
        ("text", "text"),
    ],
)
def test_a_scalar_of_any_library_becomes_a_plain_one(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("value", [torch.zeros(2), numpy.zeros(3), None, [1], 1j, b"x"])
def test_what_is_not_one_value_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        plain(value)


def test_lists_come_from_arrays_tensors_and_tuples() -> None:
    assert plain_list(numpy.array([1.0, 2.0])) == plain_list(torch.tensor([1.0, 2.0])) == plain_list((1.0, 2.0))
    for wrong in ("abc", 3, {"a": 1}, [[1]]):
        with pytest.raises(TypeError):
            plain_list(wrong)


@given(
    st.recursive(st.floats() | st.integers() | st.booleans(), lambda inner: st.lists(inner, max_size=4), max_leaves=8)
)
def test_values_survive_strict_json(value: Any) -> None:
    back = restore(json.loads(json.dumps(jsonable(value), allow_nan=False)))
    assert repr(back) == repr(value)


def test_a_mapping_with_not_a_number_survives_too() -> None:
    back = restore(json.loads(json.dumps(jsonable({"a": math.nan, "b": [1, -math.inf]}), allow_nan=False)))
    assert math.isnan(back["a"])
    assert back["b"] == [1, -math.inf]
