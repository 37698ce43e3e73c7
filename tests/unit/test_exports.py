"""What a user may import, name by name with its signature; a change here is a change that users notice.

After a wanted change: UPDATE_GOLDEN=1 pytest tests/unit/test_exports.py.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster

GOLDEN = Path(__file__).with_name("public_names.txt")
PACKAGE = Path(muster.__file__).parent
INTERNAL = {"defaults", "paths", "protocol", "systems", "version"}
"""Modules at the top that are not for users; every other one is."""
PUBLIC = [
    "muster",
    *sorted(f"muster.{file.stem}" for file in PACKAGE.glob("[a-z]*.py") if file.stem not in INTERNAL),
    *sorted(f"muster.testing.{file.stem}" for file in (PACKAGE / "testing").glob("[a-z]*.py")),
    "muster.ml",
    "muster.ml.constants",
    "muster.ml.entities",
    "muster.training",
    "muster.training.data",
]


def test_the_public_names_and_their_signatures_are_known() -> None:
    pytest.importorskip("torch")
    found = "\n".join(described()) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_lists_its_names(module: str) -> None:
    if module.startswith("muster.training"):
        pytest.importorskip("torch")
    loaded = importlib.import_module(module)
    assert len(loaded.__all__) == len(set(loaded.__all__)) and set(dir(loaded)) >= set(loaded.__all__)


def test_nothing_public_is_defined_where_users_do_not_look() -> None:
    """A room is internal unless it is one of those that are documented for users."""
    rooms = {file.parent.name for file in PACKAGE.glob("*/__init__.py") if "__all__" in file.read_text()}
    assert rooms == {"ml", "training"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchName"):
        importlib.import_module("muster").NoSuchName  # noqa: B018


def described() -> Iterator[str]:
    """Every name by its source: annotations and defaults as they are written; what is exported twice only once."""
    homes: dict[int, str] = {}
    for module in PUBLIC:
        loaded = importlib.import_module(module)
        yield f"# {module}"
        for name in sorted(loaded.__all__):
            value = getattr(loaded, name)
            home = homes.setdefault(id(value), module)
            if home != module:
                yield f"{name} of {home}"
            elif inspect.isclass(value) or inspect.isfunction(value):
                yield from _lines(ast.parse(textwrap.dedent(inspect.getsource(value))).body[0])
            else:
                yield name


def _lines(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield f"class {node.name}({bases})" if bases else f"class {node.name}"
        inner = [line for member in node.body for line in _lines(member)]
        yield from sorted(f"  {line}" for line in inner if not line.startswith("_") or line.startswith("__init__"))
    elif isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        marks = "".join(f" @{ast.unparse(mark)}" for mark in node.decorator_list)
        yield f"{node.name}({ast.unparse(node.args)}){returns}{marks}"
    elif isinstance(node, ast.AnnAssign | ast.Assign):
        yield ast.unparse(node)
