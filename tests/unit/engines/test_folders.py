"""Every engine says in its folder what it is, in the same files; an engine has at most six abstract methods."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

from muster.clusters.options import KNOWN
from muster.engines import base, registry
from muster.engines.registry import BUILT_IN

FOLDER = Path(inspect.getfile(base)).parent
SERVER = FOLDER.parent / "server"


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_engine_is_its_engine_its_options_and_its_words(name: str):
    assert BUILT_IN[name].startswith(f"muster.engines.{name}.engine:")
    options, words = (import_module(f"muster.engines.{name}.{part}") for part in ("options", "words"))
    for module in (options, words):
        assert module.__doc__
    assert callable(options.parse) and callable(options.refuse_others)
    assert any(inspect.isfunction(item) and item.__module__ == words.__name__ for item in vars(words).values())


@pytest.mark.parametrize("kind", [base.NodeEngine, base.QueueEngine])
def test_an_engine_has_at_most_six_methods_to_write(kind: type):
    assert 0 < len(kind.__abstractmethods__) <= 6


def test_the_server_knows_no_engine_and_none_of_its_settings_by_name():
    own = set()
    for name in BUILT_IN:
        module = import_module(f"muster.engines.{name}.options")
        kinds = [item for item in vars(module).values() if inspect.isclass(item) and item.__module__ == module.__name__]
        own |= {field for kind in kinds for field in kind.model_fields} - KNOWN
    assert {"linger_seconds", "connection", "server_port", "partition", "cut_off_seconds"} <= own
    # Words that mean something else in the server too.
    own -= {"account", "address", "python", "time", "connection"}
    wrong = []
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in {*own, "slurm", "ray"}:
                wrong.append(f"{path.relative_to(SERVER)}:{node.lineno}: {node.value}")
    assert not wrong
    assert registry.DEFAULT in BUILT_IN
