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
    # CUDA reads it at its start. In one of its usual eight queues the decoding of JPEGs would wait behind the steps.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    world = join()
    args = arguments(world)
    torch.manual_seed(args.seed)
    training, validation = datasets(args, world)
    model = ResNet50(training.classes, args.width).to(world.device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    step = Step(args, world, model)
    sampler = train_sampler(training, args, world)
    checkpointer = None
    if keeps_checkpoints(args):
        checkpointer = Checkpointer(model, step.optimizer, args.checkpoints, resume_from=args.resume_from)
    if checkpointer is not None and "MUSTER_STOP_FILE" in os.environ:
        # A run that is stopped has time to save: `should_stop` tells all ranks, and the signal must not end them first.
        signal.signal(signal.SIGTERM, lambda *_: None)
    throughput = Throughput(world.device, warmup_steps=args.warmup_steps)
    log = Log(args, world, throughput, step)

    progress: dict[str, Any] = {"step": 0, "top1": None}
    if checkpointer is not None and (found := checkpointer.load()) is not None:
        progress = found
        sampler.restore(progress["sampler"])
        if step.noise is not None and "noise" in progress:
            step.noise.load_state_dict(progress["noise"])
    world.share([*model.state_dict().values(), *optimizer_tensors(step.optimizer)])
    epochs = args.epochs or args.steps / sampler.full_epoch_steps
    total = args.steps or progress["step"] + steps_left(sampler, epochs)
    log.begin(len(training), total, progress["step"])

    def save(done: int) -> None:
        if checkpointer is not None:
            progress["sampler"] = sampler.state(done)
            if step.noise is not None:
                progress["noise"] = step.noise.state_dict()
            checkpointer.save(progress["step"], progress, metric=progress["top1"])

    batches, stopping = Loader(training, args, world, training=True), False
    if validation is not None:
        held_back = Loader(validation, args, world, training=False)
        keys = validation_keys(len(validation), args.batch_size, world.rank, world.size)
    while progress["step"] < total and not stopping:
        done = 0
        for images, labels in throughput.wait_for(batches.over(sampler)):
            loss = step(images, labels, rate(args, sampler.progress(done), epochs))
            throughput.step(args.batch_size)
            done += 1
            progress["step"] += 1
            if progress["step"] % args.log_every == 0 or progress["step"] == total:
                log.step(loss, progress["step"], total)
                # Every rank must leave at the same step.
                stopping = world.any(log.run.should_stop())
            if progress["step"] == total or stopping:
                break
            # The last step of an epoch is saved after its validation, which a resume would leave out otherwise.
            if args.checkpoint_every and progress["step"] % args.checkpoint_every == 0 and done < len(sampler):
                save(done)
        finished = progress["step"] == total
        if validation is not None and not stopping and (finished or (sampler.epoch + 1) % args.eval_every == 0):
            if checkpointer is not None:
                checkpointer.wait()  # its thread must not be in the middle of something when workers are forked
            with throughput.paused():
                figures = validate(model, held_back.over(keys), world, args.amp == "bf16")
            log.validation(figures, progress["step"])
            progress["top1"] = figures["top1"]
        save(done)
        sampler.set_epoch(sampler.epoch + 1)
    if checkpointer is not None:
        checkpointer.close()
    log.end(model, progress, total)
    world.leave()


def datasets(args: argparse.Namespace, world: World) -> tuple[Any, Any]:
    """What to train on, and what to validate on, if anything."""
    if args.data is not None:
        return open_both(args.data)
    made = [
        Synthetic(length, args.classes, args.image_size, world.device) if length else None
        for length in (args.synthetic, args.synthetic_val)
    ]
    return made[0], made[1]


def optimizer_tensors(optimizer: Optimizer) -> list[Tensor]:
    return [value for slots in optimizer.state.values() for value in slots.values() if isinstance(value, Tensor)]


def keeps_checkpoints(args: argparse.Namespace) -> bool:
    """Where a folder is given, and under Muster when they were asked for."""
    asked = bool(args.checkpoint_every) or args.resume_from is not None
    return args.checkpoints is not None or ("MUSTER_CHECKPOINT_DIR" in os.environ and asked)


def steps_left(sampler: ResumableSampler, epochs: float) -> int:
    """From where the sampler is; after a resume with other ranks the steps that were done say nothing of it."""
    return len(sampler) + math.floor((epochs - sampler.epoch - 1) * sampler.full_epoch_steps + 0.5)


def rate(args: argparse.Namespace, epoch: float, epochs: float) -> float:
    """The learning rate, which a short training warms up for at most half of its time."""
    return learning_rate(
        epoch,
        base=args.lr,
        scale=args.global_batch / 256,
        warmup_epochs=min(args.warmup_epochs, epochs / 2),
        decay=args.decay,
        epochs=epochs,
    )


if __name__ == "__main__":
    main()
