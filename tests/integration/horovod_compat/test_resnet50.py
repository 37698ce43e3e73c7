"""ResNet-50 with Horovod's exchange of gradients, as its job file starts it: the training is the one without."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.integration.training.conftest import BIN, TINY, train

JOB = Path(__file__).parents[3] / "examples" / "resnet50-horovod" / "job.yml"
SHORT = ("--steps", "6", "--batch-size", "4", "--synthetic-val", "16")


@pytest.mark.timeout(300)
def test_the_job_trains_as_without_horovod(workspace: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = " ".join(("python train.py --backend horovod", *TINY, *SHORT))
    started = [str(BIN / "muster"), "run", str(JOB), "--set", f"command={command}"]
    done = subprocess.run(started, cwd=workspace, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 x 4 images a step, 6 steps, horovod" in done.stdout
    subprocess.run([str(BIN / "muster"), "download", "@latest", "outputs", "--to", "got"], cwd=workspace, check=True)
    (found,) = (workspace / "got").rglob("throughput.json")
    with_horovod = json.loads(found.read_text())
    train(tmp_path, *SHORT, "--no-channels-last", ranks=2)
    without = json.loads((tmp_path / "outputs" / "throughput.json").read_text())
    for figure in ("first_loss", "final_loss", "top1"):
        assert with_horovod[figure] == pytest.approx(without[figure], abs=1e-4)
