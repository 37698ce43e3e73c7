"""A training's report, from rank 0: lines, metrics of the run, and figures at its end."""

import argparse
import json
import os
from typing import Any

from muster import Run
from muster.training import Throughput


class Log:
    def __init__(self, args: argparse.Namespace, ranks: Any, throughput: Throughput) -> None:
        self._args, self._ranks, self._throughput = args, ranks, throughput
        self._losses: list[float] = []
        self.run = Run.get_context()

    def begin(self, images: int, total: int, resumed_at: int, device: str) -> None:
        args = self._args
        if self._ranks.rank == 0:
            args.out.mkdir(parents=True, exist_ok=True)
            kind = f"from {args.data}" if args.data else "synthetic"
            print(f"ResNet-50, {images} images ({kind}), {args.image_size}x{args.image_size}, on {device}")
            print(f"{self._ranks.size} x {args.batch_size} images a step, {total} steps, {self._ranks.name}")
            if resumed_at:
                print(f"resumed after step {resumed_at}")
            print(end="", flush=True)

    def step(self, loss: float, step: int, total: int) -> None:
        rates = self._throughput.rates()
        self._record({"muster/data_s": rates.data_s, "muster/compute_s": rates.compute_s}, step)
        if self._ranks.rank == 0:
            self._losses.append(loss)
            per_s = rates.samples_per_s * self._ranks.size
            print(f"step {step}/{total}  loss {loss:.4f}  {per_s:.1f} images/s", flush=True)
            figures = {"loss": loss, "images_per_sec": per_s, "images_per_sec_per_device": rates.samples_per_s}
            self._record(figures, step)
            if self._in_run:
                self.run.progress(step, total, "steps")

    def validation(self, figures: dict[str, float], step: int) -> None:
        if self._ranks.rank == 0:
            print(f"step {step}  top-1 {figures['top1']:.2%}  top-5 {figures['top5']:.2%}", flush=True)
            self._record(figures, step)

    def end(self, progress: dict[str, Any], total: int, finished: bool) -> None:
        """Write and print the figures of all ranks."""
        args, found = self._args, self._throughput.total(self._ranks)
        if self._ranks.rank != 0:
            return
        counted = found["counted_steps"] > 0
        figures = {
            "images_per_sec": found.pop("samples_per_s") if counted else None,
            "images_per_sec_per_device": found.pop("samples_per_s_per_device") if counted else None,
            "images_per_sec_of_ranks": found.pop("samples_per_s_of_ranks"),
            **found,
            "batch_size_per_rank": args.batch_size,
            "image_size": args.image_size,
            "steps": progress["step"],
            "top1": progress["top1"],
        }
        if self._losses:
            tail = self._losses[-max(1, len(self._losses) // 10) :]
            figures.update(first_loss=self._losses[0], final_loss=sum(tail) / len(tail))
        (args.out / "throughput.json").write_text(json.dumps(figures, indent=2) + "\n")
        if counted:
            rates = {name: figures[name] for name in ("images_per_sec", "images_per_sec_per_device")}
            self._record(rates, progress["step"])
            print(
                f"{rates['images_per_sec']:.1f} images/s in total, {rates['images_per_sec_per_device']:.1f} per device "
                f"({figures['warmup_steps']} warm-up steps left out); {max(figures['data_s']):.1f} s waited for data"
            )
        else:
            print("no throughput: all steps were warm-up (--warmup-steps)")
        if not finished:
            print(f"stopped after step {progress['step']} of {total}", flush=True)

    @property
    def _in_run(self) -> bool:
        return "MUSTER_RUN_ID" in os.environ

    def _record(self, figures: dict[str, float], step: int) -> None:
        """Log metrics of the run; outside Muster the printed lines are enough."""
        for name, value in figures.items() if self._in_run else ():
            self.run.log(name, value, step=step)
