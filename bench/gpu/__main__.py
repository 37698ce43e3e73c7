"""ResNet-50 on a GPU: the cost of Muster, the speed of the example, JPEGs, and the stall of a checkpoint.

Each part can be run alone and has a time limit, and measurements are kept when a later part fails. Figures of parts
that are not run now stay in the file, each with its time and command.
`--tiny` checks that it works on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bench import checkpoint
from bench.gpu.jpegs import make_shards
from bench.measure import RESULTS, Figure, Workspace, machine, temporary_workspace, versions

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "resnet50"
BARE = Path(__file__).with_name("bare.py")
PARTS = ("overhead", "defaults", "jpeg", "checkpoint")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3, help="of the example, for each figure; the median counts")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--warmup-steps", type=int, default=30)
    parser.add_argument("--batches", default="256,512,1024", help="per-device batches for `defaults`")
    parser.add_argument("--example-args", default="", help="further arguments of the example, such as '--compile off'")
    parser.add_argument("--bare-compile", default="default", help="mode of torch.compile in the bare loop, or off")
    parser.add_argument("--limit-s", type=float, default=460, help="no further part begins after so long")
    parser.add_argument("--tiny", action="store_true", help="does it work, not how fast is it")
    args = parser.parse_args()
    if not args.tiny and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here; --tiny runs without one")
    if args.tiny:
        args.pairs, args.runs, args.steps, args.warmup_steps, args.batches = 1, 1, 4, 1, "4"
        args.example_args += " --width 8 --image-size 32"
    results = Results(args)
    began = time.monotonic()
    with temporary_workspace() as workspace:
        bench = Bench(args, workspace, results)
        ways: dict[str, Callable[[], None]] = {
            "overhead": bench.overhead,
            "defaults": bench.defaults,
            "jpeg": bench.jpeg,
            "checkpoint": bench.checkpoint,
        }
        for part in args.parts.split(","):
            if time.monotonic() - began > args.limit_s:
                results.note(part, "left out: the time was up")
                continue
            try:
                ways[part]()
            except Exception:
                results.note(part, traceback.format_exc())
            results.write()


class Results:
    """What was measured so far, printed at once and written after every part."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._figures: list[Figure] = []
        self._file = RESULTS / "gpu.json"
        self._earlier: list[dict[str, Any]] = []
        if self._file.exists() and not args.tiny:
            self._earlier = json.loads(self._file.read_text())["figures"]
        self._notes: dict[str, str] = {}
        self._tiny = args.tiny

    def add(self, figure: Figure) -> None:
        self._figures.append(figure)
        target = {True: "met", False: "MISSED", None: ""}[figure.met]
        print(f"  {figure.name:<60} {figure.value:>10.4g} {figure.unit:<10} {target}", flush=True)

    def note(self, part: str, text: str) -> None:
        self._notes[part] = text
        print(f"{part}: {text}", flush=True)

    def measured_now(self, name: str) -> float | None:
        return next((figure.value for figure in self._figures if figure.name == name), None)

    def best(self, beginning: str) -> float:
        """Of all figures whose names begin so, those of earlier calls included."""
        now = {figure.name: figure.value for figure in self._figures}
        values = {figure["name"]: figure["value"] for figure in self._earlier} | now
        return max(value for name, value in values.items() if name.startswith(beginning))

    def write(self) -> None:
        on_gpu = torch.cuda.is_available()
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        about = {"at": at, "command": shlex.join(["python", "-m", "bench.gpu", *sys.argv[1:]])}
        new = {figure.name: {**asdict(figure), "met": figure.met, **about} for figure in self._figures}
        kept = [figure for figure in self._earlier if figure["name"] not in new]
        document = {
            "bench": "gpu",
            "at": at,
            "machine": {**machine(), "gpu": torch.cuda.get_device_name() if on_gpu else None},
            "versions": {**versions(), "cuda": torch.version.cuda, "python": platform.python_version()},
            "figures": [*kept, *new.values()],
            "notes": self._notes,
        }
        if not self._tiny:
            RESULTS.mkdir(exist_ok=True)
            self._file.write_text(json.dumps(document, indent=2) + "\n")


class Bench:
    """One workspace in which the example runs again and again."""

    def __init__(self, args: argparse.Namespace, workspace: Workspace, results: Results) -> None:
        self._args, self._workspace, self._results = args, workspace, results
        # The next run finds the results of torch.compile; the next bench too, if the cache has a permanent folder.
        self._cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(workspace.folder / "inductor")

    def overhead(self) -> None:
        """A bare loop, and the same loop through `muster run`, in turns."""
        batch = int(self._args.batches.split(",")[0])
        ways = {
            "bare loop": lambda: self._bare(batch),
            "bare loop through muster run": lambda: self._bare(batch, through_muster=True),
        }
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(self._args.pairs):
            for name, measure in ways.items():
                samples[name].append(measure())
                print(f"    {name:<40} {samples[name][-1]:>10.1f} images/s", flush=True)
        for name, values in samples.items():
            self._results.add(Figure(f"{name}, batch {batch}", statistics.median(values), "images/s", samples=values))
        bare, through = samples.values()
        ratios = [own / alone for own, alone in zip(through, bare, strict=True)]
        name = "bare loop through muster run, against alone"
        self._results.add(Figure(name, statistics.median(ratios), "", at_least=0.99, samples=ratios))

    def defaults(self) -> None:
        """The example as it is, at several batches."""
        for batch in map(int, self._args.batches.split(",")):
            values = [self._example(batch)["images_per_sec"] for _ in range(self._args.runs)]
            target = {256: 7000.0, 1024: 8000.0}.get(batch)
            self._results.add(
                Figure(_made_up(batch), statistics.median(values), "images/s", at_least=target, samples=values)
            )
        best = self._results.best(_made_up())
        self._results.add(Figure("example, best of these", best, "images/s", at_least=7500.0))

    def jpeg(self) -> None:
        """From packed shards of JPEGs, against made-up images at the same batch."""
        batch = int(self._args.batches.split(",")[0])
        tiny, folder = self._args.tiny, self._workspace.folder / "shards"
        size = make_shards(folder, 16 if tiny else 1024, 64 if tiny else (self._args.steps + 1) * batch)
        self._results.add(Figure("mean size of a JPEG", size / 1e3, "kB"))
        made_up = self._results.measured_now(_made_up(batch)) or self._example(batch)["images_per_sec"]
        runs = [self._example(batch, "--data", str(folder)) for _ in range(self._args.runs)]
        values = [run["images_per_sec"] for run in runs]
        self._results.add(
            Figure(f"example with JPEGs, batch {batch}", statistics.median(values), "images/s", samples=values)
        )
        waits = [100 * run["data_s"][0] / run["seconds"] for run in runs]
        self._results.add(Figure("of its time, waiting for JPEGs", statistics.median(waits), "%", samples=waits))
        self._results.add(Figure("JPEGs against made-up images", statistics.median(values) / made_up, "", at_least=0.9))

    def checkpoint(self) -> None:
        if self._args.tiny:
            samples = checkpoint.measure(torch.device("cpu"), 2, 2, rounds=1)
        else:
            samples = checkpoint.measure(torch.device("cuda"), None, None, rounds=5)
        for figure in checkpoint.figures(samples, at_least=8.0):
            self._results.add(figure)

    def _example(self, batch: int, *further: str) -> dict[str, Any]:
        code = [str(EXAMPLE / "train.py"), "--batch-size", str(batch), *self._common(), *further]
        return self._through_muster([*code, *self._args.example_args.split(), "--log-every", "50"])

    def _bare(self, batch: int, through_muster: bool = False) -> float:
        code = [str(BARE), "--model-folder", str(EXAMPLE), "--batch-size", str(batch), *self._common()]
        code += ["--compile", self._args.bare_compile]
        if self._args.tiny:
            code += ["--width", "8", "--image-size", "32"]
        if through_muster:
            return float(self._through_muster(code)["images_per_sec"])
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": self._cache}
        done = self._run([sys.executable, *code], env)
        return float(json.loads(done.splitlines()[-1])["images_per_sec"])

    def _common(self) -> list[str]:
        return ["--steps", str(self._args.steps), "--warmup-steps", str(self._args.warmup_steps)]

    def _through_muster(self, code: list[str]) -> dict[str, Any]:
        script, *arguments = code
        gpus = ["--gpus-per-node", "1"] if torch.cuda.is_available() else []
        cache = ["--env", f"TORCHINDUCTOR_CACHE_DIR={self._cache}"]
        self._run([*muster(), "run", script, "--quiet", *gpus, *cache, "--", *arguments], dict(os.environ))
        run = self._workspace.client.run("@latest")
        found: dict[str, Any] = json.loads(self._workspace.client.read_file(run.id, "outputs/throughput.json"))
        return found

    def _run(self, command: list[str], env: dict[str, str]) -> str:
        done = subprocess.run(
            command, cwd=self._workspace.folder, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command)}\nexit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            )
        return done.stdout


def _made_up(batch: int | str = "") -> str:
    return f"example, batch {batch}"


def muster() -> list[str]:
    """The command, also where only the package is on the path."""
    installed = Path(sys.executable).with_name("muster")
    if installed.exists():
        return [str(installed)]
    return [sys.executable, "-c", "from muster.cli.main import main; main()"]


if __name__ == "__main__":
    main()
