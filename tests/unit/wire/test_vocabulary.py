"""The vocabulary as a whole: standard library alone, every class a message, no name twice."""

from __future__ import annotations

import ast
import importlib
import sys
from collections import Counter
from dataclasses import FrozenInstanceError, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import muster.wire

ROOT = Path(muster.wire.__path__[0])
MODULES = sorted(ROOT.rglob("*.py"))
# Those that never become JSON by the codec.
NO_MESSAGES = {"Code", "Event", "Chunk", "UnreadableEvent"}


def classes() -> list[type[Any]]:
    found = []
    for path in MODULES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = importlib.import_module(".".join(("muster", "wire", *parts)).removesuffix(".__init__"))
        found += [
            item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__
        ]
    return [item for item in found if is_dataclass(item) and not item.__name__.startswith("_")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_agents_can_import_it(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            own = name in ("muster.wire", "muster.defaults") or name.startswith("muster.wire.")
            assert own or name.split(".")[0] in sys.stdlib_module_names, name


def test_every_class_is_a_message_that_refuses_extra_fields() -> None:
    plain = {item.__name__ for item in classes() if vars(item).get("__pydantic_config__") != {"extra": "forbid"}}
    assert plain == NO_MESSAGES


def test_every_class_is_frozen_and_says_what_it_is() -> None:
    for item in classes():
        made, name = object.__new__(item), next(iter(item.__dataclass_fields__), "any")
        made.__dict__[name] = None
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, 1)
        with pytest.raises(FrozenInstanceError):
            delattr(made, name)
        assert item.__doc__ and not item.__doc__.startswith(f"{item.__name__}("), item


def test_no_name_stands_for_two_things() -> None:
    twice = [name for name, count in Counter(item.__name__ for item in classes()).items() if count > 1]
    assert twice == []
