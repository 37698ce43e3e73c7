"""Every engine says in its folder what it is, in the same files; an engine has at most six abstract methods."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

from muster.clusters.options import Options
from muster.engines import base, registry
from muster.engines.registry import BUILT_IN
from muster.errors import JobError

FOLDER = Path(inspect.getfile(base)).parent
SERVER = FOLDER.parent / "server"


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_engine_is_its_engine_and_its_options(name: str):
    folder = f"muster.engines.{folder_of(name)}"
    assert BUILT_IN[name].startswith((f"{folder}.engine:", f"{folder}.sites:"))
    (kind,) = option_classes(name)
    assert kind.owner != Options.owner


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_engine_refuses_a_setting_that_its_clusters_do_not_have(name: str):
    with pytest.raises(JobError) as refused:
        registry.Engines().get(name).check(base.Cluster("mine", name, {"max_node": 2}))
    assert "has no setting 'max_node'" in str(refused.value)
    assert refused.value.hint == "Did you mean max_nodes?"


@pytest.mark.parametrize("kind", [base.NodeEngine, base.QueueEngine])
def test_an_engine_has_at_most_six_methods_to_write(kind: type):
    assert 0 < len(kind.__abstractmethods__) <= 6


def test_the_server_knows_no_engine_and_none_of_its_settings_by_name():
    own = set()
    for name in BUILT_IN:
        own |= {field for kind in option_classes(name) for field in kind.model_fields.keys() - Options.model_fields}
    assert {"linger_seconds", "connection", "server_port", "partition", "cut_off_seconds"} <= own
    # Words that mean something else in the server too.
    own -= {"account", "address", "python", "time", "connection", "resources", "gpu_share"}
    wrong = []
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in {*own, "slurm", "ray"}:
                wrong.append(f"{path.relative_to(SERVER)}:{node.lineno}: {node.value}")
    assert not wrong
    assert registry.DEFAULT in BUILT_IN


def folder_of(name: str) -> str:
    return name.replace("-", "_")


def option_classes(name: str) -> list[type[Options]]:
    module = import_module(f"muster.engines.{folder_of(name)}.options")
    return [item for item in vars(module).values() if inspect.isclass(item) and item.__module__ == module.__name__]
