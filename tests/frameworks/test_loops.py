"""The loop of docs/training.md, and the same with Lightning Fabric and with Accelerate: stopped, and started again.

What the document's table says of each is what comes out here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.frameworks.environments import ENVIRONMENTS, REPOSITORY

LOOPS = Path(__file__).parent / "loops"
DOCUMENT = REPOSITORY / "docs" / "training.md"
TIMEOUT_S = 400
STEPS = 40
ROW = re.compile(
    r"^\| (?P<name>muster\.training|Lightning Fabric|Accelerate) .*?\| (?P<lines>\d+) \|.*\| (?P<exact>yes|no)\b", re.M
)
SCRIPTS = {"Lightning Fabric": "fabric_loop.py", "Accelerate": "accelerate_loop.py"}


def original(name: str) -> str:
    if name in SCRIPTS:
        return (LOOPS / SCRIPTS[name]).read_text()
    (text,) = re.findall(r"```python\n(# train\.py\n.*?)```", DOCUMENT.read_text(), re.S)
    return str(text)


def script(name: str, folder: Path) -> Path:
    """A little slower than it stands there, so that a signal finds it in the middle."""
    text = original(name)
    path = folder / "train.py"
    path.write_text(
        "import time\n" + text.replace("        step += 1\n", "        step += 1\n        time.sleep(0.05)\n")
    )
    return path


def train(path: Path, folder: Path, *, stop_after: str = "") -> dict[str, str]:
    """The loss of each step that it printed; after one of them it may get SIGTERM."""
    torchrun = ENVIRONMENTS["torch"].folder / "bin" / "torchrun"
    words = [torchrun, "--standalone", "--nproc-per-node", "2", path, "--epochs", "2", "--save-every", "1000"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "PYTHONUNBUFFERED": "1"}
    found = {}
    with subprocess.Popen(
        [str(word) for word in words], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            found |= dict(re.findall(r"step (\d+) loss (\S+)", line))
            if stop_after and line.startswith(f"step {stop_after} "):
                child.send_signal(signal.SIGTERM)
        child.wait(TIMEOUT_S)
    return found


@pytest.mark.parametrize("name", ["muster.training", *SCRIPTS])
def test_the_table_has_the_lines_that_are_neither_empty_nor_comments(name: str) -> None:
    said = {match["name"]: int(match["lines"]) for match in ROW.finditer(DOCUMENT.read_text())}
    lines = (line.strip() for line in original(name).splitlines())
    assert sum(bool(line) and not line.startswith("#") for line in lines) == said[name]


@pytest.mark.timeout(3 * TIMEOUT_S)
@pytest.mark.parametrize("name", ["muster.training", *SCRIPTS])
def test_a_loop_resumes_as_the_document_says(name: str, tmp_path: Path) -> None:
    if not ENVIRONMENTS["torch"].is_made:
        pytest.skip("the environment torch is not made (make frameworks)")
    said = {match["name"]: match["exact"] == "yes" for match in ROW.finditer(DOCUMENT.read_text())}
    for part in ("alone", "stopped"):
        (tmp_path / part).mkdir()
    path = script(name, tmp_path)
    alone = train(path, tmp_path / "alone")
    first = train(path, tmp_path / "stopped", stop_after="7")
    second = train(path, tmp_path / "stopped")
    assert len(alone) == STEPS and 7 <= len(first) < STEPS
    assert min(map(int, second)) == max(map(int, first)) + 1, "it goes on behind the step that it stopped after"
    assert first.items() <= alone.items()
    assert ({**first, **second} == alone) == said[name]
