"""How long a checkpoint stalls the training: asynchronous, against `torch.save` with fsync, in the same run."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bench.measure import Figure, interleave, median, report
from muster.training import Checkpointer

EXAMPLE = Path(__file__).parents[1] / "examples" / "resnet50"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it work, not how fast is it")
    parser.add_argument("--json", action="store_true", help="print the seconds as JSON and write no result")
    parser.add_argument("--batch-size", type=int, help="default 256 on a GPU, 2 on a CPU")
    parser.add_argument("--steps", type=int, help="steps of a measured stretch; default 40 on a GPU, 4 on a CPU")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    samples = measure(device, args.batch_size, args.steps, rounds=2 if args.quick else 5)
    if args.json:
        print(json.dumps(samples))
        return
    report("checkpoint", figures(samples, at_least=None if device.type == "cpu" else 8.0), args.quick)


def figures(samples: dict[str, list[float]], at_least: float | None) -> list[Figure]:
    plain = statistics.median(samples["plain"])
    stalls = {name: [value - plain for value in samples[name]] for name in ("asynchronous", "torch.save")}
    # Below a tenth of a millisecond the difference of two measurements is noise.
    ratio = statistics.median(stalls["torch.save"]) / max(statistics.median(stalls["asynchronous"]), 1e-4)
    return [
        median("stretch without a checkpoint", samples["plain"], "s"),
        median("stall of torch.save with fsync", stalls["torch.save"], "s"),
        median("stall of Checkpointer", stalls["asynchronous"], "s"),
        Figure("torch.save against Checkpointer", ratio, "times", at_least=at_least),
    ]


def measure(device: torch.device, batch_size: int | None, steps: int | None, rounds: int) -> dict[str, list[float]]:
    """Seconds of a stretch of training with no checkpoint, an asynchronous one, and one by torch.save."""
    on_gpu = device.type == "cuda"
    train = Training(device, batch_size or (256 if on_gpu else 2), 224 if on_gpu else 64)
    stretch = steps or (40 if on_gpu else 4)
    with tempfile.TemporaryDirectory(prefix="muster-bench-", dir=os.environ.get("MUSTER_BENCH_DIR")) as name:
        folder = Path(name)
        checkpointer = Checkpointer(train.model, train.optimizer, folder / "sharded", keep_last=1)
        numbers = iter(range(1, 1000))
        ways: dict[str, Callable[[], float]] = {
            "plain": lambda: train.seconds(stretch, lambda: None),
            "asynchronous": lambda: train.seconds(
                stretch, lambda: checkpointer.save(next(numbers)), after=checkpointer.wait
            ),
            "torch.save": lambda: train.seconds(stretch, lambda: train.save_and_sync(folder / "whole.pt")),
        }
        samples = interleave(rounds, ways)
        checkpointer.close()
    return samples


class Training:
    """ResNet-50 on one batch of made-up images."""

    def __init__(self, device: torch.device, batch_size: int, image_size: int) -> None:
        sys.path.insert(0, str(EXAMPLE))
        from model import ResNet50

        self.device, on_gpu = device, device.type == "cuda"
        self.model = ResNet50(1000).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, fused=on_gpu)
        self.images = torch.randn(batch_size, 3, image_size, image_size, device=device)
        self.images = self.images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(1000, (batch_size,), device=device)
        self.forward = torch.compile(self.model) if on_gpu else self.model

    def step(self) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            scores = self.forward(self.images)
        torch.nn.functional.cross_entropy(scores.float(), self.labels).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self, steps: int, save: Callable[[], None], after: Callable[[], None] = lambda: None) -> float:
        """Of so many steps with a save after the first, until the device has done them."""
        self.finish()
        began = time.perf_counter()
        self.step()
        save()
        for _ in range(steps - 1):
            self.step()
        self.finish()
        passed = time.perf_counter() - began
        after()
        return passed

    def save_and_sync(self, path: Path) -> None:
        with path.open("wb") as target:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, target)
            target.flush()
            os.fsync(target.fileno())

    def finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
