"""Runs examples/parallel and draws what the ranks did: python -m tools.parallel_pictures [NAME ...]."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES, IMAGES = ROOT / "examples" / "parallel", ROOT / "docs" / "images"
TORCHRUN = Path(sys.executable).with_name("torchrun")


@dataclass(frozen=True)
class Picture:
    """A recording of an example, and how it is drawn."""

    script: str
    arguments: str
    ranks: int
    title: str
    drawn: str = ""


def _pipeline(schedule: str, title: str) -> Picture:
    arguments = f"--schedule {schedule} --steps 3 --blocks 8 --width 16 --microbatches 8"
    return Picture("pipeline", arguments, 4, title, "--even")


PICTURES = {
    "pipeline-gpipe": _pipeline("gpipe", "GPipe: eight micro-batches on four ranks"),
    "pipeline-1f1b": _pipeline("1f1b", "1F1B: each backward as early as possible"),
    "pipeline-interleaved": _pipeline("interleaved", "Interleaved: two stages on each rank, the second ones lighter"),
    "tensor": Picture("tensor", "--steps 6 --width 128 --batch-size 64", 2, "Tensor parallel: one step"),
    "sharded": Picture("sharded", "--steps 6 --width 128 --batch-size 64", 2, "Fully sharded: one step"),
    "experts": Picture("experts", "--steps 6 --width 64 --batch-size 64", 2, "Expert parallel: one step"),
    "mesh": Picture(
        "mesh",
        "--ways pipeline,tensor --steps 3 --width 16 --microbatches 8",
        4,
        "A mesh of 2 x 2: two stages, each on two ranks that divide its matrices",
        "--even",
    ),
    "server-0": Picture(
        "parameter_server",
        "--steps 10 --staleness 0 --hiccups 0.3 --pause-s 0.05 --batch-size 255",
        4,
        "Parameter server (rank 0), bound 0: when one pauses, all wait",
    ),
    "server-4": Picture(
        "parameter_server",
        "--steps 10 --staleness 4 --hiccups 0.3 --pause-s 0.05 --batch-size 255",
        4,
        "Parameter server, bound 4: others go on while one pauses",
    ),
    "local-sgd": Picture(
        "local_sgd", "--steps 20 --every 8", 2, "Local updates: the ranks talk after every eighth step"
    ),
    "locked": Picture(
        "synthetic_gradients",
        "--locked --steps 10 --delay-s 0.05",
        2,
        "Backpropagation over a network with a delay of 50 ms",
    ),
    "synthetic-gradients": Picture(
        "synthetic_gradients", "--steps 10 --delay-s 0.05 --lag 10", 2, "The same with synthetic gradients"
    ),
}


def main(names: list[str]) -> None:
    if unknown := [name for name in names if name not in PICTURES]:
        sys.exit(f"no picture is called {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    for name in names or PICTURES:
        picture = PICTURES[name]
        with tempfile.TemporaryDirectory(prefix="mp-") as folder:
            script = [str(EXAMPLES / f"{picture.script}.py"), *picture.arguments.split(), "--timeline", "--out", folder]
            launcher = [str(TORCHRUN), "--standalone", "--nproc-per-node", str(picture.ranks)]
            subprocess.run([*launcher, *script], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=folder)
            target = ["--to", str(IMAGES / f"parallel-{name}.svg"), "--title", picture.title, *picture.drawn.split()]
            command = [sys.executable, str(EXAMPLES / "picture.py"), f"{folder}/timeline.json", *target]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
