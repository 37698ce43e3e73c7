"""Segmentation, detection and text on a GPU through `muster run`, against a bare compiled loop of the same model."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from bench.gpu.__main__ import ROOT, muster
from bench.measure import Figure, Workspace, report, temporary_workspace

EXAMPLES = ROOT / "examples" / "tasks"
SIZES = {
    "segmentation": "--images 2048 --image-size 128 --width 32 --batch-size 256",
    "detection": "--images 512 --image-size 128 --width 48 --batch-size 256",
    "text": "--lines 8000 --width 256 --layers 4 --batch-size 512",
}
TINY = "--batch-size 16"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", default=",".join(SIZES))
    parser.add_argument("--tiny", action="store_true", help="does it work, not how fast is it; needs no GPU")
    parser.add_argument("--bare", choices=SIZES, help="the bare loop alone, printed as JSON")
    args = parser.parse_args()
    if args.bare:
        bare(args.bare, args)
        return
    if not args.tiny and not torch.cuda.is_available():
        sys.exit("there is no GPU here; --tiny runs without one")
    figures: list[Figure] = []
    with temporary_workspace() as workspace:
        for task in args.tasks.split(","):
            pairs = [(bare_rate(task, args), rate(workspace, task, args)) for _ in range(args.rounds)]
            figures += [
                Figure(f"{task}, bare loop", statistics.median(pair[0] for pair in pairs), "samples/s"),
                Figure(f"{task}, muster run", statistics.median(pair[1] for pair in pairs), "samples/s"),
            ]
            ratios = [through / alone for alone, through in pairs]
            name = f"{task}, against the bare loop"
            figures.append(Figure(name, statistics.median(ratios), "", at_least=0.9, samples=ratios))
            print(figures[-3:], flush=True)
    report("gpu-tasks", figures, args.tiny)


def options(task: str, args: argparse.Namespace) -> list[str]:
    sizes = TINY if args.tiny else SIZES[task] + " --compile"
    steps = str(8 if args.tiny else args.steps)
    # Epochs are short here, so evaluate once, at the end.
    return [*sizes.split(), "--steps", steps, "--eval-every", steps]


def rate(workspace: Workspace, task: str, args: argparse.Namespace) -> float:
    gpus = ["--gpus-per-node", "1"] if torch.cuda.is_available() else []
    folder = workspace.folder / "tasks"
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    command = [*muster(), "run", str(folder / f"{task}.py"), "--quiet", *gpus, "--", *options(task, args)]
    run(command, workspace.folder)
    ended = workspace.client.run("@latest")
    return float(json.loads(workspace.client.read_file(ended.id, "outputs/figures.json"))["samples_per_s"])


def bare_rate(task: str, args: argparse.Namespace) -> float:
    tiny = ["--tiny"] if args.tiny else []
    words = [sys.executable, "-m", "bench.gpu.tasks", "--bare", task, "--steps", str(args.steps), *tiny]
    return float(json.loads(run(words, ROOT).splitlines()[-1])["samples_per_s"])


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def bare(task: str, args: argparse.Namespace) -> None:
    """The script with its loop replaced by one that does nothing but steps, over one batch that stays on the device."""
    sys.path.insert(0, str(EXAMPLES))
    module = __import__(task)
    given = options(task, args)
    vars(module)["train"] = loop
    sys.argv = [task, *given]
    module.main()


def loop(
    args: argparse.Namespace,
    world: Any,
    model: nn.Module,
    data: TensorDataset,
    loss: Callable[[nn.Module, list[Tensor]], Tensor],
    _: Any,
) -> None:
    on_gpu = world.device.type == "cuda"
    torch.backends.cudnn.benchmark = on_gpu
    model.to(world.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=on_gpu)
    compute = torch.compile(loss) if args.compile else loss
    batch = [tensor[: args.batch_size].to(world.device) for tensor in data.tensors]
    warm_up, began = args.steps // 4, 0.0
    for step in range(args.steps):
        if step == warm_up:
            began = now(on_gpu)
        with torch.autocast(world.device.type, torch.bfloat16, enabled=on_gpu):
            value = compute(model, batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    seconds = now(on_gpu) - began
    print(json.dumps({"samples_per_s": (args.steps - warm_up) * args.batch_size / seconds}))


def now(on_gpu: bool) -> float:
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
