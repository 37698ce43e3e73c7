"""A notebook with a kernel of its own: what a cell shows that ends with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

TRAIN = """
import time
from muster import Run
run = Run.get_context()
for step in range(30):
    run.log("loss", 1 / (1 + step), step=step)
    time.sleep(0.1)
"""
SUBMIT = """
from muster import Experiment, ScriptRunConfig, Workspace
ws = Workspace.from_config()
config = ScriptRunConfig(source_directory=".", script="train.py", compute_target="local")
run = Experiment(ws, "notebook").submit(config)
"""
WAIT = """
import threading
run.wait_for_completion()
for thread in threading.enumerate():
    if thread.name.startswith("view of"):
        thread.join(60)
"""


def shown(cell: Any) -> str:
    (output,) = cell["outputs"]
    return str(output["data"]["text/html"])


def test_a_run_at_the_end_of_a_cell_is_shown_until_it_has_ended(workspace: Path) -> None:
    (workspace / "train.py").write_text(TRAIN)
    cells = [nbformat.v4.new_code_cell(source) for source in (SUBMIT, "run", WAIT, "run")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(workspace)}}
    ).execute()
    _, while_it_ran, _, after = notebook["cells"]
    # The first view was followed to the end, and says what a view says that is asked for then.
    assert "Completed" in shown(while_it_ran)
    assert "<polyline" in shown(while_it_ran)
    assert shown(while_it_ran) == shown(after)
