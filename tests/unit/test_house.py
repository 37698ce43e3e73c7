"""Holds the size and the shape of the code: figures that may fall and never rise."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "muster"
FILES = {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
TREES = {path: ast.parse(text) for path, text in FILES.items()}

# Each figure's ceiling, and how far below it the figure may be before the ceiling has to follow.
CEILINGS = {
    "untyped dicts per 1,000 lines": (0.6, 0.4),
    "deferred own imports": (8, 5),
    "modules in the largest room": (20, 3),
    "places that call flock": (2, 1),
    "functions past 50 lines": (5, 1),
    "files past 500 lines": (0, 0),
}

UNTYPED = re.compile(r"\b(?:[dD]ict|Mapping|MutableMapping)\[str, (?:Any|object)\]")
MOST_LINES_OF_FUNCTION = 50
MOST_LINES_OF_FILE = 500


@pytest.mark.parametrize("name", CEILINGS)
def test_no_figure_rises_and_every_ceiling_follows(name: str) -> None:
    ceiling, slack = CEILINGS[name]
    figure, where = FIGURES[name]()
    assert figure <= ceiling, (
        f"{name}: {figure:g}, at most {ceiling:g}. Make the code smaller, not the ceiling larger. {where}"
    )
    assert figure >= ceiling - slack, (
        f"{name}: {figure:g}, well below the ceiling of {ceiling:g}. Lower it to {figure:g} in CEILINGS, so that it "
        "stays there."
    )


def untyped_dicts() -> tuple[float, str]:
    """`dict[str, Any]` and its like, and every use of a name that stands for one."""
    found = Counter({path: len(UNTYPED.findall(text)) for path, text in FILES.items()})
    for path, tree in TREES.items():
        found[path] += sum(1 for _ in alias_uses(tree))
    return round(1000 * found.total() / total_lines(), 1), worst(found)


def alias_uses(tree: ast.Module) -> Iterator[ast.Name]:
    """Uses of untyped aliases; the definition itself is counted by its text."""
    known = aliases_of(tree)
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.startswith("muster."):
            theirs = ALIASES.get(statement.module, set())
            known |= {item.asname or item.name for item in statement.names if item.name in theirs}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in known and isinstance(node.ctx, ast.Load):
            yield node


def aliases_of(tree: ast.Module) -> set[str]:
    """Module-level names that stand for an untyped dict, or for several of them; not for a call that takes one."""
    found = set()
    for statement in tree.body:
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Subscript | ast.BinOp):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            text = ast.unparse(value)
            if isinstance(target, ast.Name) and UNTYPED.search(text) and not text.startswith("Callable"):
                found.add(target.id)
    return found


def module_of(path: Path) -> str:
    parts = ("muster", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


ALIASES = {module_of(path): aliases_of(tree) for path, tree in TREES.items()}


def deferred_imports() -> tuple[int, str]:
    """Imports of our own modules inside functions, each once."""
    found: Counter[Path] = Counter()
    for path, tree in TREES.items():
        inside = {node for function in functions(tree) for node in ast.walk(function)}
        found[path] = sum(1 for node in inside if imports_own(node))
    return found.total(), worst(found)


def imports_own(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] == "muster"
    return isinstance(node, ast.Import) and any(item.name.split(".")[0] == "muster" for item in node.names)


def largest_room() -> tuple[int, str]:
    rooms = Counter(path.parent for path in FILES if path.name != "__init__.py")
    return max(rooms.values()), worst(rooms)


def flock_calls() -> tuple[int, str]:
    found = Counter({path: len(re.findall(r"\bflock\(", text)) for path, text in FILES.items()})
    return found.total(), worst(found)


def long_functions() -> tuple[int, str]:
    long = Counter(
        {
            f"{path}:{function.lineno}": length
            for path, tree in TREES.items()
            for function in functions(tree)
            if (length := (function.end_lineno or 0) - function.lineno) > MOST_LINES_OF_FUNCTION
        }
    )
    return len(long), worst(long)


def long_files() -> tuple[int, str]:
    long = Counter({path: lines for path, text in FILES.items() if (lines := text.count("\n")) > MOST_LINES_OF_FILE})
    return len(long), worst(long)


def total_lines() -> int:
    return sum(text.count("\n") for text in FILES.values())


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def worst(found: Counter[Path] | Counter[str]) -> str:
    """Where there is most to gain."""
    names = ((str(item).removeprefix(f"{SOURCE.parent}/"), count) for item, count in found.most_common(5) if count)
    return "Most of it: " + ", ".join(f"{name} ({count})" for name, count in names)


FIGURES = {
    "untyped dicts per 1,000 lines": untyped_dicts,
    "deferred own imports": deferred_imports,
    "modules in the largest room": largest_room,
    "places that call flock": flock_calls,
    "functions past 50 lines": long_functions,
    "files past 500 lines": long_files,
}


def test_aliases_of_untyped_dicts_count_at_every_use() -> None:
    code = "View = dict[str, Any]\ndef read(view: View) -> View: ...\nother: dict[str, int] = {}\n"
    tree = ast.parse(code)
    assert aliases_of(tree) == {"View"}
    assert len(list(alias_uses(tree))) == 2


def test_every_import_inside_a_function_counts_once() -> None:
    code = "def outer():\n import muster.errors\n def inner():\n  from muster import job\n  import json\n"
    tree = ast.parse(code)
    inside = {node for function in functions(tree) for node in ast.walk(function)}
    assert sum(1 for node in inside if imports_own(node)) == 2
