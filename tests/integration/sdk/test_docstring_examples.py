"""Examples in docstrings of the SDK are run, against a real server."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

from muster import Experiment, ScriptRunConfig, Workspace

SCRIPT = """
from pathlib import Path
from muster import Run
run = Run.get_context()
for step, loss in enumerate((1.0, 0.5, 0.25)):
    run.log("loss", loss, step=step)
Path("outputs").mkdir(exist_ok=True)
Path("outputs/model.pt").write_text("a model")
"""
MODULES = ("run", "experiment", "environment")


def test_examples_do_what_they_show(workspace: Path) -> None:
    (workspace / "train.py").write_text(SCRIPT)
    ws = Workspace.from_config()
    first = Experiment(ws, "examples").submit(ScriptRunConfig(source_directory=".", script="train.py"))
    first.wait_for_completion()
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for name in MODULES:
        module = importlib.import_module(f"muster.sdk.{name}")
        for test in finder.find(module, extraglobs={"workspace": ws, "run": first}):
            runner.run(test)
    assert runner.tries > 10
    assert runner.failures == 0
