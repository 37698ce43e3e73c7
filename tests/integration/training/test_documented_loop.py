"""The loop of docs/training.md, as it stands there: stopped in an epoch and started again, it is the one left alone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.training.conftest import BIN, run_script

DOCUMENT = Path(__file__).parents[3] / "docs" / "training.md"
ARGUMENTS = ("--epochs", "2", "--save-every", "1000")


def loop(folder: Path) -> Path:
    (script,) = re.findall(r"```python\n(# train\.py\n.*?)```", DOCUMENT.read_text(), re.S)
    path = folder / "train.py"
    path.write_text(script)
    return path


def losses(said: str) -> dict[str, str]:
    return dict(re.findall(r"step (\d+) loss (\S+)", said))


def test_stopped_by_a_signal_and_started_again_it_has_the_same_losses(tmp_path: Path) -> None:
    for name in ("alone", "stopped"):
        (tmp_path / name).mkdir()
    script = loop(tmp_path)
    alone = losses(run_script(tmp_path / "alone", script, *ARGUMENTS, ranks=2).stdout)
    assert len(alone) == 40
    first = stopped_after(tmp_path / "stopped", script, "step 7 ")
    assert 7 <= len(first) < 40
    second = losses(run_script(tmp_path / "stopped", script, *ARGUMENTS, ranks=2).stdout)
    assert min(map(int, second)) == max(map(int, first)) + 1
    assert {**first, **second} == alone
    stopped, alone_model = (tmp_path / name / "outputs" / "model.pt" for name in ("stopped", "alone"))
    assert stopped.read_bytes() == alone_model.read_bytes()


def test_ranks_stay_alike_where_the_parts_of_a_step_are_not(tmp_path: Path) -> None:
    script = loop(tmp_path)
    told = 'print("weights", *world.gather(sum(weight.sum().item() for weight in model.parameters())))\nworld.leave()'
    script.write_text(script.read_text().replace("world.leave()", told))
    done = run_script(tmp_path, script, "--epochs", "1", "--accumulate", "5", "--save-every", "1000", ranks=2)
    first, second = re.findall(r"weights (\S+) (\S+)", done.stdout)[0]
    assert first == second


def stopped_after(folder: Path, script: Path, line: str) -> dict[str, str]:
    """What it printed until SIGTERM, sent when it had come to a line, ended it in order."""
    slow = script.with_name("slow.py")
    # A little slower, so that the signal finds it in the middle.
    slower = script.read_text().replace("        step += 1\n", "        step += 1\n        time.sleep(0.05)\n")
    slow.write_text(f"import time\n{slower}")
    command = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", str(slow), *ARGUMENTS]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=sys.stderr, text=True) as child:
        assert child.stdout is not None
        said = []
        for shown in child.stdout:
            said.append(shown)
            if shown.startswith(line):
                child.send_signal(signal.SIGTERM)
        child.wait()
    return losses("".join(said))
