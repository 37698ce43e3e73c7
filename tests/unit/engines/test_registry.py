"""Where engines come from: built in, installed by another package, or named by the workspace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from muster import errors
from muster.engines.base import NodeEngine, QueueEngine
from muster.engines.registry import BUILT_IN, Engines

PLUGIN = """
from muster.testing.engine import FakeEngine

class CloudEngine(FakeEngine):
    name = "cloud"

class NoEngine:
    pass
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path with its dist-info, as an installer leaves it."""
    info = tmp_path / "muster_cloud-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: muster-cloud\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[muster.engines]\n"
        "cloud = muster_cloud_engine:CloudEngine\n"
        "broken = muster_cloud_missing:Engine\n"
        "other = muster_cloud_engine:NoEngine\n"
        "local = muster_cloud_engine:CloudEngine\n"
    )
    (tmp_path / "muster_cloud_engine.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("muster_cloud_engine", None)


def test_the_built_in_engines_are_there_and_each_is_of_one_kind():
    engines = Engines()
    for name in BUILT_IN:
        assert (engines.owner(name) is None) != (engines.queue(name) is None)
        assert engines.get(name).name == name
    assert isinstance(engines.get("local"), NodeEngine) and isinstance(engines.get("slurm"), QueueEngine)
    assert engines.on_this_machine("local") and not engines.on_this_machine("slurm")
    engines.close()


def test_an_installed_package_brings_an_engine(installed: Path):
    engine = Engines().get("cloud")
    assert (type(engine).__name__, engine.name) == ("CloudEngine", "cloud")


def test_a_package_does_not_replace_what_is_built_in_but_the_workspace_may(installed: Path):
    assert type(Engines().get("local")).__name__ == "LocalEngine"
    named = Engines({"local": "muster_cloud_engine:CloudEngine"})
    assert type(named.get("local")).__name__ == "CloudEngine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", r"'broken' \(muster_cloud_missing:Engine, from the package muster-cloud\) .* No module named"),
        ("other", "neither a NodeEngine nor a QueueEngine"),
        ("nimbus", "there is no engine 'nimbus'"),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused_by_name_and_harms_no_other(installed: Path, name: str, said: str):
    engines = Engines()
    with pytest.raises(errors.JobError, match=said):
        engines.get(name)
    assert engines.trouble(name)
    assert engines.owner(name) is None and engines.queue(name) is None and not engines.on_this_machine(name)
    assert engines.trouble("cloud") == "" and engines.owner("cloud") is not None
