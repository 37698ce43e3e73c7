"""Holds the lines of docs/architecture.md: who may import what."""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "muster"
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "tools", "shared", "lib"}
SERVER_ONLY = {"fastapi", "starlette", "uvicorn", "uvloop", "httptools", "sqlalchemy", "alembic"}
CLUSTER_LIBRARIES = {"ray", "pyslurm", "torch", "tensorflow", "horovod", "mpi4py"}


@dataclass(frozen=True)
class Import:
    """One import statement's target as seen from a module of Muster."""

    importer: str
    target: str
    line: int
    typing_only: bool


def modules() -> dict[str, Path]:
    """Dotted name below `muster` to file; the package itself is the empty name."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = list(path.relative_to(SOURCE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


MODULES = modules()


def imports_of(name: str) -> Iterator[Import]:
    tree = ast.parse(MODULES[name].read_text())
    yield from _walk(name, tree, typing_only=False)


def _walk(name: str, node: ast.AST, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(name, alias.name, child.lineno, typing_only)
        elif isinstance(child, ast.ImportFrom):
            for target in _from_targets(name, child):
                yield Import(name, target, child.lineno, typing_only)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            yield from _walk(name, child, typing_only=True)
        else:
            yield from _walk(name, child, typing_only)


def _from_targets(name: str, statement: ast.ImportFrom) -> list[str]:
    """`from package import name` is an import of `package.name` where that is a module."""
    base = statement.module or ""
    if statement.level:
        parents = ["muster", *name.split(".")] if name else ["muster"]
        is_package = MODULES[name].name == "__init__.py"
        kept = len(parents) - statement.level + (1 if is_package else 0)
        base = ".".join([*parents[:kept], *([statement.module] if statement.module else [])])
    targets = []
    for alias in statement.names:
        if (base, alias.name) == ("muster", "__version__"):
            continue
        full = f"{base}.{alias.name}"
        targets.append(full if full.removeprefix("muster.") in MODULES else base)
    return sorted(set(targets))


def own(target: str) -> str | None:
    """The name below `muster`, or None for something else's module."""
    if target == "muster":
        return ""
    return target.removeprefix("muster.") if target.startswith("muster.") else None


IMPORTS_OF = {name: list(imports_of(name)) for name in sorted(MODULES)}
ALL_IMPORTS = [entry for entries in IMPORTS_OF.values() for entry in entries]
MOST_NAMES = 6


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text()


def documented_layers() -> dict[str, set[str]]:
    """The table of docs/architecture.md: first part of a module's name to what it may import."""
    table = architecture().split("## Packages", 1)[1].split("\n\n", 2)[1]
    layers: dict[str, set[str]] = {}
    for row in table.splitlines()[2:]:
        _, first, _, last, _ = (cell.strip() for cell in row.split("|"))
        names = [""] if first.startswith("top-level") else re.findall(r"`([\w.]+)`", first)
        allowed = set(re.findall(r"`([\w.]+)`", last))
        if last.startswith("each other"):
            allowed |= set(names)
        for name in names:
            layers[name] = allowed
    return layers


LAYERS = documented_layers()


def layer_of(name: str) -> str:
    """The row that a module belongs to; a top-level module that has no row of its own is one of the v1 names."""
    first = name.split(".")[0]
    return first if first in LAYERS else ""


def may_import(layer: str) -> set[str]:
    """What the table allows, and what those in turn may import."""
    reached: set[str] = set()
    waiting = list(LAYERS[layer])
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += LAYERS[name]
    return reached


def test_the_table_names_every_package() -> None:
    packages = {name for name in MODULES if name and "." not in name and MODULES[name].name == "__init__.py"}
    assert packages <= LAYERS.keys()
    assert {name for layer in LAYERS for name in LAYERS[layer]} <= LAYERS.keys() <= {*MODULES, ""}


def test_a_row_is_short_enough_to_be_kept_in_mind() -> None:
    assert not {name: allowed for name, allowed in LAYERS.items() if len(allowed) > MOST_NAMES}


def test_the_picture_shows_every_room() -> None:
    picture = architecture().split("## The layers", 1)[1].split("```")[1]
    drawn = set(re.findall(r"[a-z_]+", picture))
    assert {name for name in LAYERS if name and MODULES[name].name == "__init__.py"} <= drawn


def test_the_way_of_one_job_is_short_and_names_files_that_are_there() -> None:
    way = architecture().split("## How one job runs", 1)[1].split("\n## ", 1)[0].strip()
    assert len(way.splitlines()) <= 20
    missing = [name for name in re.findall(r"`([\w/]+(?:\.py|/\w+))`", way) if not (SOURCE / name).exists()]
    assert not missing


def test_modules_import_only_what_their_layer_may() -> None:
    wrong = []
    for entry in ALL_IMPORTS:
        target = own(entry.target)
        if target is None or entry.typing_only:
            continue
        layer, target_layer = layer_of(entry.importer), layer_of(target)
        # The v1 names are one lazy surface over `sdk`: they may name each other.
        if layer == target_layer or target_layer in may_import(layer):
            continue
        wrong.append(f"{MODULES[entry.importer].relative_to(ROOT)}:{entry.line} imports muster.{target}")
    assert not wrong, "\n".join(wrong)


def test_there_are_no_import_cycles() -> None:
    """Imports inside functions count: they must not dodge a cycle."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for entry in ALL_IMPORTS:
        target = own(entry.target)
        if target in MODULES and not entry.typing_only and target != entry.importer:
            graph[entry.importer].add(target)
    graphlib.TopologicalSorter(graph).prepare()


def test_every_imported_module_of_muster_exists() -> None:
    missing = {
        f"{entry.importer}: {entry.target}" for entry in ALL_IMPORTS if own(entry.target) not in {None, *MODULES}
    }
    assert not missing


def test_modules_are_named_by_what_they_hold() -> None:
    vague = {name for name in MODULES if VAGUE_NAMES & set(re.split(r"[._]", name))}
    # Horovod's own name, which scripts import.
    assert vague <= {"horovod_compat.common", "horovod_compat.common.exceptions"}


@pytest.mark.parametrize(
    ("layer", "allowed"),
    [
        *(
            (name, set())
            for name in ("version", "errors", "defaults", "wire", "host", "paths", "shards", "runtime", "scoring")
        ),
        ("agent", {"psutil"}),
        ("training", {"torch", "numpy", "fsspec", "pyarrow", "tensorflow"}),
        ("rankfiles", {"fsspec"}),
        *((f"engines.ray.{name}", set()) for name in ("cluster", "leash", "node_tasks")),
    ],
)
def test_light_rooms_and_all_that_they_import_use_few_libraries(layer: str, allowed: set[str]) -> None:
    """Imports inside functions count too: a node has no more than Python and psutil."""
    used: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [name for name in MODULES if name == layer or name.startswith(f"{layer}.")]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for entry in IMPORTS_OF[name]:
            target = own(entry.target)
            if target is None:
                used[entry.target.split(".")[0]] = f"{name}:{entry.line}"
            elif target and not entry.typing_only:
                waiting.append(target)
    assert not {
        library: where for library, where in used.items() if library not in {*sys.stdlib_module_names, *allowed}
    }


def test_only_the_server_imports_the_servers_libraries() -> None:
    wrong = [
        f"{entry.importer}:{entry.line}: {entry.target}"
        for entry in ALL_IMPORTS
        if entry.target.split(".")[0] in SERVER_ONLY and not entry.importer.startswith("server")
    ]
    assert not wrong


RAY_ALONE = {"engines.ray.bridge", "engines.ray.broker"}
"""Run inside the Ray cluster, or in a process of their own; the server imports neither."""


FRAMEWORKS_OF = {"training": {"torch", "tensorflow"}, "horovod_compat": {"torch", "tensorflow", "mpi4py"}}


def test_only_rooms_for_scripts_import_a_frameworks_library() -> None:
    wrong = [
        f"{entry.importer}:{entry.line}: {entry.target}"
        for entry in ALL_IMPORTS
        if entry.target.split(".")[0] in CLUSTER_LIBRARIES - FRAMEWORKS_OF.get(layer_of(entry.importer), set())
        and not (entry.importer in RAY_ALONE and entry.target.split(".")[0] == "ray")
    ]
    assert not wrong


def test_the_server_never_imports_ray() -> None:
    assert "ray" not in {
        name.split(".")[0] for name in loaded_by("import muster.server.main, muster.engines.ray.engine")
    }
    importers = {entry.importer for entry in ALL_IMPORTS if own(entry.target) in RAY_ALONE}
    assert importers <= RAY_ALONE


def loaded_by(statement: str) -> set[str]:
    """Modules that a fresh Python has loaded after the statement and not before."""
    show = "print(json.dumps(sorted(set(sys.modules) - before)))"
    code = f"import json, sys; before = set(sys.modules); {statement}; {show}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_muster_loads_nothing_until_a_name_is_used() -> None:
    loaded = loaded_by("import muster")
    third_party = {name for name in loaded if name.split(".")[0] not in {*sys.stdlib_module_names, "muster"}}
    assert not third_party
    assert {name for name in loaded if name.startswith("muster")} <= {"muster", "muster.errors"}


def test_data_for_training_needs_no_framework() -> None:
    loaded = {name.split(".")[0] for name in loaded_by("import muster.training.data")}
    assert not loaded & {"torch", "tensorflow", "pyarrow", "fsspec"}


def test_the_client_does_not_load_the_servers_libraries() -> None:
    loaded = {name.split(".")[0] for name in loaded_by("import muster.client.api, muster.client.connect")}
    assert not loaded & SERVER_ONLY


def test_the_agent_loads_neither_pydantic_nor_the_servers_libraries() -> None:
    loaded = {name.split(".")[0] for name in loaded_by("import muster.agent.main")}
    assert not loaded & {"pydantic", "yaml", "rich", "typer", *SERVER_ONLY}


def test_unit_tests_mirror_the_rooms() -> None:
    """A test of a room lies in the folder of that name; tests of the whole project lie in tests/unit itself."""
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")} - {Path()}
    packages = {name for name in MODULES if MODULES[name].name == "__init__.py"}
    assert {".".join(folder.parts) for folder in folders} <= packages
