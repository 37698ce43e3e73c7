"""A training's report: lines, metrics of the run, and figures at its end."""

import argparse
import json
import os
from typing import Any

import torch
from step import Step
from torch import Tensor, nn

from muster import Run
from muster.training import Throughput, World, advise


class Log:
    """Prints, records and writes results; only rank 0 does."""

    def __init__(self, args: argparse.Namespace, world: World, throughput: Throughput, step: Step) -> None:
        self._args, self._world, self._throughput, self._step = args, world, throughput, step
        self._leads = world.rank == 0
        self._losses: list[float] = []
        self.run = Run.get_context()

    def begin(self, images: int, total: int, resumed_at: int) -> None:
        args, world = self._args, self._world
        if self._leads:
            try:
                args.out.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SystemExit(f"--out: {args.out} cannot be made: {error.strerror}") from None
            kind = f"from {args.data}" if args.data else "synthetic"
            print(f"ResNet-50, {images} images ({kind}), {args.image_size}x{args.image_size}, on {world.device.type}")
            print(f"{world.size} x {args.batch_size} images a step, {total} steps, {args.backend}", flush=True)
            if resumed_at:
                print(f"resumed after step {resumed_at}", flush=True)

    def step(self, loss: Tensor, step: int, total: int) -> None:
        """The one place where the training waits for the device."""
        value = self._world.mean(loss).item()
        rates = self._throughput.rates()
        self._record({"muster/data_s": rates.data_s, "muster/compute_s": rates.compute_s}, step)
        if self._leads:
            self._losses.append(value)
            per_s = rates.samples_per_s * self._world.size
            print(f"step {step}/{total}  loss {value:.4f}  {per_s:.1f} images/s", flush=True)
            figures = {"loss": value, "images_per_sec": per_s, "images_per_sec_per_device": rates.samples_per_s}
            if self._step.noise is not None and (scale := self._step.noise.value):
                figures["noise_scale"] = scale
            self._record(figures, step)
            if self._in_run:
                self.run.progress(step, total, "steps")

    def validation(self, figures: dict[str, float], step: int) -> None:
        if self._leads:
            print(f"step {step}  top-1 {figures['top1']:.2%}  top-5 {figures['top5']:.2%}", flush=True)
            self._record(figures, step)

    def end(self, model: nn.Module, progress: dict[str, Any], total: int, finished: bool) -> None:
        """Write and print the figures of all ranks, and write the model unless the training was stopped."""
        args, figures = self._args, self._throughput.total(self._world)
        if not self._leads:
            return
        total_rate, device_rate = figures.pop("samples_per_s"), figures.pop("samples_per_s_per_device")
        counted = figures["counted_steps"] > 0
        figures = {
            "images_per_sec": total_rate if counted else None,
            "images_per_sec_per_device": device_rate if counted else None,
            "images_per_sec_of_ranks": figures.pop("samples_per_s_of_ranks"),
            **figures,
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
            rates = {"images_per_sec": total_rate, "images_per_sec_per_device": device_rate}
            self._record(rates, progress["step"])
            print(
                f"{total_rate:.1f} images/s in total, {device_rate:.1f} per device "
                f"({figures['warmup_steps']} warm-up steps left out); {max(figures['data_s']):.1f} s waited for data"
            )
        elif figures["warmup_steps"] == 0:
            print("no throughput: nothing was left to train")
        else:
            print(f"no throughput: all {figures['warmup_steps']} steps were warm-up (--warmup-steps)")
        if self._step.noise is not None:
            scale = self._step.noise.value
            print(
                advise(args.global_batch, scale).text
                if scale
                else "no noise scale: too few steps, or too little left to learn"
            )
        if not finished:
            before = ", before its validation" if progress["step"] == total else ""
            print(f"stopped after step {progress['step']} of {total}{before}", flush=True)
            return
        torch.save(model.state_dict(), args.out / "model.pt")
        print(f"{args.out}/model.pt is the model, {args.out}/throughput.json has the figures", flush=True)

    @property
    def _in_run(self) -> bool:
        return "MUSTER_RUN_ID" in os.environ

    def _record(self, figures: dict[str, float], step: int) -> None:
        """Log metrics of the run; outside Muster the printed lines are enough."""
        for name, value in figures.items() if self._in_run else ():
            self.run.log(name, value, step=step)
