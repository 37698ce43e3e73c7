"""The codec: strict reading with the field named, exact writing, every message there and back."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import field, fields
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import muster.wire
from muster.wire.codec import OMIT, Json, WireError, from_json, from_neighbour, to_json
from muster.wire.message import wire
from muster.wire.node.agents import AgentConfig, Exited, Order
from muster.wire.retention import RetentionPolicy
from muster.wire.runs import RunView
from muster.wire.verdicts import Verdict


@wire
class Cat:
    kind: Literal["cat"]
    lives: int = 9


@wire
class Dog:
    kind: Literal["dog", "puppy"]
    name: str


@wire
class Zoo:
    name: str
    pets: tuple[Cat | Dog, ...] = ()
    size: float = 0.0
    pair: tuple[str, int] = ("", 0)
    notes: Mapping[str, str] = field(default_factory=dict, metadata=OMIT)
    best: Cat | None = None
    open: Json = None
    by_name: Mapping[str, Cat | Dog] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    label: str | int | tuple[str, ...] | None = field(default=None, metadata=OMIT)


def messages() -> list[type[Any]]:
    found = []
    for module in pkgutil.walk_packages(muster.wire.__path__, "muster.wire."):
        loaded = importlib.import_module(module.name)
        found += [
            value
            for value in vars(loaded).values()
            if isinstance(value, type) and value.__module__ == loaded.__name__ and "__pydantic_config__" in vars(value)
        ]
    return found


_TEXT = st.text(max_size=4)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=3,
)
_SCALARS: Mapping[Any, st.SearchStrategy[Any]] = {
    str: _TEXT,
    int: st.integers(-9, 9),
    float: st.floats(0, 9),
    bool: st.booleans(),
    type(None): st.none(),
}
# Fields whose values a message checks.
_CHECKED: Mapping[str, st.SearchStrategy[Any]] = {
    "lifetime_s": st.floats(1, 60),
    "older_than_s": st.floats(0, 9),
    "keep_last": st.integers(0, 9),
    "size": st.integers(0, 9),
    "size_bytes": st.integers(10**6, 10**12),
    "folder": st.just("/data/files"),
    "clients": st.just("10.1.0.0/16"),
    "sha256": st.just("0" * 64),
    "key": st.just("0" * 64),
    "name": st.just("a-name"),
    "address": st.just("https://example.org"),
    "to": st.just("a-name"),
    "quiet_s": st.floats(10, 60),
    "file_id": st.just("0" * 32),
    "collection": st.just("request"),
    "date": st.just("2026/11/18"),
    "when": st.sampled_from([("ends",), ("fails", "nan")]),
}
_COUNTS: Mapping[str, st.SearchStrategy[Any]] = {
    "nodes": st.integers(1, 3),
    "instances": st.just(6),
    "max_instances": st.just(12),
}


def values(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values of a type that a message may hold."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _JSON
    if name == "when" and origin is tuple:
        return _CHECKED[name]
    if name in _COUNTS and hint is int:
        return _COUNTS[name]
    if hint in _SCALARS:
        return _CHECKED[name] if name in _CHECKED and hint in (str, int, float) else _SCALARS[hint]
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is Union or origin is UnionType:
        return st.one_of([values(item, name) for item in inner])
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(item) for item in inner))
    if origin is list:
        return st.lists(values(inner[0]), max_size=2)
    if origin in (dict, Mapping):
        return st.dictionaries(_TEXT, values(inner[1]), max_size=2)
    return built(hint)


def built(message: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(message, include_extras=True)
    return st.builds(message, **{item.name: values(hints[item.name], item.name) for item in fields(message)})


@pytest.mark.parametrize("message", [*messages(), Zoo], ids=lambda message: message.__name__)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_message_comes_back_as_it_was(message: type[Any], data: st.DataObject) -> None:
    try:
        value = data.draw(built(message))
    except ValueError:
        # Some fields exclude one another.
        assume(False)
    sent = json.loads(json.dumps(to_json(value)))
    assert from_json(message, sent) == value


def test_there_are_messages() -> None:
    assert {RunView, Order, Verdict} <= set(messages())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "name: Zoo needs this field"),
        ({"name": 3}, "name: expected a string, got a whole number (3)"),
        ({"name": "a", "colour": 1}, "colour: Zoo has no such field"),
        ({"name": "a", "size": "big"}, "size: expected a number, got a string ('big')"),
        ({"name": "a", "size": True}, "size: expected a number, got true or false (True)"),
        ({"name": "a", "best": {"kind": "cat", "lives": True}}, "best.lives: expected a whole number, got true or"),
        ({"name": "a", "best": 3}, "best: expected null or Cat, got a whole number (3)"),
        ({"name": "a", "pets": [{"kind": "cat"}, {"kind": "cow"}]}, "pets[1].kind: expected one of 'cat', 'dog', 'pup"),
        ({"name": "a", "pets": [{"kind": "dog"}]}, "pets[0].name: Dog needs this field"),
        ({"name": "a", "pets": {}}, "pets: expected a list, got an object"),
        ({"name": "a", "pair": ["x"]}, "pair: expected a list of 2, got a list"),
        ({"name": "a", "pair": ["x", "y"]}, "pair[1]: expected a whole number, got a string ('y')"),
        ({"name": "a", "notes": {"n": 1}}, "notes['n']: expected a string, got a whole number (1)"),
        (
            {"name": "a", "by_name": {"n": {"kind": "dog", "name": None}}},
            "by_name['n'].name: expected a string, got null",
        ),
        ({"name": "a", "label": [1]}, "label[0]: expected a string, got a whole number (1)"),
        ([], "expected Zoo, got a list"),
    ],
)
def test_an_error_names_the_field(data: Any, said: str) -> None:
    with pytest.raises(WireError) as caught:
        from_json(Zoo, data)
    assert str(caught.value).startswith(said)


def test_a_union_is_told_apart_by_its_literal() -> None:
    zoo = from_json(Zoo, {"name": "a", "pets": [{"kind": "cat"}, {"kind": "puppy", "name": "b"}]})
    assert zoo.pets == (Cat("cat"), Dog("puppy", "b"))


def test_messages_that_nothing_tells_apart_are_refused() -> None:
    with pytest.raises(TypeError, match="nothing tells Zoo, Verdict apart"):
        from_json(tuple[Zoo | Verdict, ...], [])


def test_a_whole_number_is_a_number() -> None:
    size = from_json(Zoo, {"name": "a", "size": 3}).size
    assert (size, type(size)) == (3.0, float)


def test_what_may_be_left_out_is_left_out_only_while_it_has_its_default() -> None:
    lost = Exited(0, None, None, False, 1.0, lost_with="agent")
    seen = Exited(0, 0, None, False, 1.0, max_rss_kb=0, core_dumped=False)
    assert to_json(lost) == {
        "rank": 0, "exit_code": None, "signal": None, "expected": False, "at": 1.0, "lost_with": "agent",
    }  # fmt: skip
    assert {"max_rss_kb": 0, "core_dumped": False}.items() <= to_json(seen).items()
    assert "oom_killed" not in to_json(seen)


def test_a_message_checks_its_values_when_it_is_read() -> None:
    with pytest.raises(WireError, match="keep_last -1 is out of range: use at least 0"):
        from_json(RetentionPolicy, {"keep_last": -1})


def test_credentials_stay_out_of_representations() -> None:
    config = AgentConfig("n", "c", "/r", (), "hush")
    order = Order("r", 1, "go", masked=("hush",), secret="hush")
    assert "hush" not in repr(config) + repr(order)


@wire
class Cage:
    cat: Cat
    dogs: tuple[Dog, ...] = ()


def test_a_neighbour_may_say_more_and_nobody_else() -> None:
    said = {"cat": {"kind": "cat", "tail": 1}, "dogs": [{"kind": "dog", "name": "a", "new": [1]}], "new": None}
    for _ in range(2):
        with pytest.raises(WireError, match="no such field"):
            from_json(Cage, said)
        assert from_neighbour(Cage, said) == Cage(Cat("cat"), (Dog("dog", "a"),))
    with pytest.raises(WireError):
        from_neighbour(Cage, {"cat": {"kind": "dog"}})
