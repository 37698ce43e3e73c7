"""Trains ResNet-50, data parallel: alone, under torchrun, under mpirun, or under Muster."""

import argparse
import math
import os
import signal
from typing import Any

import torch
from data import Loader, train_sampler, validation_keys
from model import ResNet50
from options import arguments
from report import Log
from sources import Synthetic, open_both
from step import Step
from torch import Tensor
from torch.optim import Optimizer
from validate import validate

from muster.training import Checkpointer, ResumableSampler, Throughput, World, join, learning_rate


def main() -> None:
    # CUDA reads this at its start. With its usual eight queues, decoding JPEGs could wait behind the steps.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    world = join()
    training = Training(arguments(world), world)
    training.resume()
    training.run()
    world.leave()


class Training:
    """The training of a model."""

    def __init__(self, args: argparse.Namespace, world: World) -> None:
        self._args, self._world = args, world
        torch.manual_seed(args.seed)
        training, validation = datasets(args, world)
        self._images = len(training)
        self._model = ResNet50(training.classes, args.width).to(world.device)
        if args.channels_last:
            self._model = self._model.to(memory_format=torch.channels_last)
        self._step = Step(args, world, self._model)
        self._sampler = train_sampler(training, args, world)
        self._batches, self._held_back = Loader(training, args, world, training=True), None
        if validation is not None:
            self._held_back = Loader(validation, args, world, training=False)
            self._held_back_keys = validation_keys(len(validation), args.batch_size, world.rank, world.size)
        self._checkpointer = None
        if keeps_checkpoints(args):
            self._checkpointer = Checkpointer(
                self._model, self._step.optimizer, args.checkpoints, resume_from=args.resume_from
            )
        if self._checkpointer is not None and "MUSTER_STOP_FILE" in os.environ:
            # A run that is stopped has time to save: ranks check `should_stop`, and the signal must not end them.
            signal.signal(signal.SIGTERM, lambda *_: None)
        self._throughput = Throughput(world.device, warmup_steps=args.warmup_steps)
        self._log = Log(args, world, self._throughput, self._step)
        self._progress: dict[str, Any] = {"step": 0, "top1": None, "validated": None}
        self._epochs = args.epochs or args.steps / self._sampler.full_epoch_steps

    def resume(self) -> None:
        """Resume from a checkpoint, if there is one; all ranks begin with the same state."""
        found = self._checkpointer.load() if self._checkpointer is not None else None
        progress, sampler, noise = self._progress, self._sampler, self._step.noise
        if found is not None:
            progress.update(found)
            sampler.restore(found["sampler"])
            if noise is not None and "noise" in found:
                noise.load_state_dict(found["noise"])
        self._world.share([*self._model.state_dict().values(), *optimizer_tensors(self._step.optimizer)])
        self._total = self._args.steps or progress["step"] + steps_left(sampler, self._epochs)
        if self._total == 0:
            raise SystemExit(f"--epochs {self._args.epochs:g} of {self._images} images is less than one step")
        self._log.begin(self._images, self._total, progress["step"])
        at_end = found is not None and (sampler.epoch > found["sampler"]["epoch"] or progress["step"] == self._total)
        if at_end and self._validation_is_due(sampler.epoch):
            # The last attempt was stopped before the validation.
            self._validate()
            self._save(0)

    def run(self) -> None:
        stopping = False
        while self._progress["step"] < self._total and not stopping:
            done, stopping = self._train()
            if not stopping and self._validation_is_due(self._sampler.epoch + 1):
                self._validate()
            self._save(done)
            self._sampler.set_epoch(self._sampler.epoch + 1)
        step, validated = self._progress["step"], self._progress["validated"]
        finished = step == self._total and (self._held_back is None or validated == step)
        self._log.end(self._model, self._progress, self._total, finished)
        if self._checkpointer is not None:
            self._checkpointer.close()

    def _train(self) -> tuple[int, bool]:
        """Train for the rest of an epoch; returns its number of steps, and whether to stop."""
        args, progress, sampler, done = self._args, self._progress, self._sampler, 0
        for images, labels in self._throughput.wait_for(self._batches.over(sampler)):
            loss = self._step(images, labels, rate(args, sampler.progress(done), self._epochs))
            self._throughput.step(args.batch_size)
            done += 1
            progress["step"] += 1
            if progress["step"] % args.log_every == 0 or progress["step"] == self._total:
                self._log.step(loss, progress["step"], self._total)
                # Every rank must leave at the same step.
                if self._world.any(self._log.run.should_stop()):
                    return done, True
            if progress["step"] == self._total:
                break
            # The last step of an epoch is saved after its validation.
            if args.checkpoint_every and progress["step"] % args.checkpoint_every == 0 and done < len(sampler):
                self._save(done)
        return done, False

    def _validation_is_due(self, whole_epochs: int) -> bool:
        """After every few epochs and after the last step, but not twice after the same one."""
        step = self._progress["step"]
        if self._held_back is None or self._progress["validated"] == step:
            return False
        return step == self._total or whole_epochs % self._args.eval_every == 0

    def _validate(self) -> None:
        assert self._held_back is not None
        with self._throughput.paused():
            if self._checkpointer is not None:
                self._checkpointer.wait()  # its thread must not be in the middle of something when workers are forked
            batches = self._held_back.over(self._held_back_keys)
            figures = validate(self._model, batches, self._world, self._args.amp == "bf16")
        self._log.validation(figures, self._progress["step"])
        self._progress.update(top1=figures["top1"], validated=self._progress["step"])

    def _save(self, done: int) -> None:
        """Save a checkpoint after `done` steps of this epoch."""
        progress = self._progress
        if self._checkpointer is None:
            return
        progress["sampler"] = self._sampler.state(done)
        if self._step.noise is not None:
            progress["noise"] = self._step.noise.state_dict()
        metric = progress["top1"] if progress["validated"] == progress["step"] else None
        self._checkpointer.save(progress["step"], progress, metric=metric)


def datasets(args: argparse.Namespace, world: World) -> tuple[Any, Any]:
    """The data to train on, and the data to validate on, if any."""
    if args.data is not None:
        training, validation = open_both(args.data)
    else:
        kind = (args.classes, args.image_size, world.device)
        training = Synthetic(args.synthetic, *kind)
        validation = Synthetic(args.synthetic_val, *kind, held_back=True) if args.synthetic_val else None
    if len(training) < args.global_batch:
        raise SystemExit(
            f"{len(training)} images do not fill one step of {world.size} x {args.batch_size}: give more of them, or a "
            "smaller --batch-size"
        )
    return training, validation


def optimizer_tensors(optimizer: Optimizer) -> list[Tensor]:
    return [value for slots in optimizer.state.values() for value in slots.values() if isinstance(value, Tensor)]


def keeps_checkpoints(args: argparse.Namespace) -> bool:
    """Whether to save checkpoints: if a folder is given, or under Muster if they were requested."""
    asked = bool(args.checkpoint_every) or args.resume_from is not None
    return args.checkpoints is not None or ("MUSTER_CHECKPOINT_DIR" in os.environ and asked)


def steps_left(sampler: ResumableSampler, epochs: float) -> int:
    """The remaining steps from the sampler's position: after a resume with other ranks, past steps do not count."""
    return len(sampler) + math.floor((epochs - sampler.epoch - 1) * sampler.full_epoch_steps + 0.5)


def rate(args: argparse.Namespace, epoch: float, epochs: float) -> float:
    """The learning rate; a short training warms up for at most half of its time."""
    larger = args.global_batch / 256
    return learning_rate(
        epoch,
        base=args.lr,
        # LARS adapts steps to each layer's weights, and needs less than proportional scaling.
        scale=larger**0.5 if args.optimizer == "lars" else larger,
        warmup_epochs=min(args.warmup_epochs, epochs / 2),
        decay=args.decay,
        epochs=epochs,
    )


if __name__ == "__main__":
    main()
