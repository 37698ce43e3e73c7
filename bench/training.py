"""The ResNet-50 example on 2 CPU ranks: through `muster run`, against the same loop started by `torchrun`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.measure import Figure, Workspace, interleave, median, quick, report, temporary_workspace

EXAMPLE = Path(__file__).parents[1] / "examples" / "resnet50"
ARGUMENTS = ["--width", "16", "--image-size", "64", "--batch-size", "8", "--warmup-steps", "10", "--log-every", "10"]


def main() -> None:
    is_quick = quick(__doc__)
    steps = 30 if is_quick else 110
    with temporary_workspace() as workspace:
        samples = interleave(
            1 if is_quick else 7,
            {"torchrun": lambda: by_torchrun(workspace, steps), "muster": lambda: by_muster(workspace, steps)},
        )
    ratios = [own / other for own, other in zip(samples["muster"], samples["torchrun"], strict=True)]
    figures = [
        median("torchrun", samples["torchrun"], "images/s"),
        median("muster run", samples["muster"], "images/s"),
        Figure("muster run against torchrun", statistics.median(ratios), "", at_least=0.97, samples=ratios),
    ]
    report("training", figures, is_quick)


def by_torchrun(workspace: Workspace, steps: int) -> float:
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [str(torchrun), "--standalone", "--nproc-per-node", "2", str(EXAMPLE / "train.py")]
    subprocess.run(
        [*command, *ARGUMENTS, "--steps", str(steps), "--out", str(workspace.folder / "bare")],
        cwd=workspace.folder,
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return rate((workspace.folder / "bare" / "throughput.json").read_bytes())


def by_muster(workspace: Workspace, steps: int) -> float:
    muster = Path(sys.executable).with_name("muster")
    command = [str(muster), "run", str(EXAMPLE / "train.py"), "--procs", "2", "--env", "OMP_NUM_THREADS=1", "--"]
    subprocess.run([*command, *ARGUMENTS, "--steps", str(steps)], cwd=workspace.folder, check=True, capture_output=True)
    run = workspace.client.run("@latest")
    return rate(workspace.client.read_file(run.id, "outputs/throughput.json"))


def rate(figures: bytes) -> float:
    return float(json.loads(figures)["images_per_sec"])


if __name__ == "__main__":
    main()
