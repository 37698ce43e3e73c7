"""The arguments: those of the PyTorch example that apply here."""

import argparse
import os
import sys
from argparse import BooleanOptionalAction
from pathlib import Path

IMAGENET = 1_281_167


def parser(description: str) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=description)
    data = found.add_argument_group("data")
    data.add_argument(
        "--data", type=Path, metavar="FOLDER", help="holds train and val: .tar shards, .tfrecord, or a folder per class"
    )
    data.add_argument(
        "--synthetic", type=positive, default=IMAGENET, metavar="N", help="without --data: so many made-up images"
    )
    data.add_argument("--synthetic-val", type=not_negative, default=0, metavar="N", help="and so many to validate on")
    data.add_argument("--classes", type=positive, help="where the data does not say it; default 10 made-up ones")
    data.add_argument("--image-size", type=positive, metavar="PIXELS", help="default 224 on a GPU, 96 on a CPU")
    data.add_argument(
        "--augment", action=BooleanOptionalAction, default=True, help="train on random views, not on the middle"
    )
    recipe = found.add_argument_group("recipe")
    recipe.add_argument(
        "--batch-size", type=positive, help="images per rank and step; default 256 on a GPU, 16 on a CPU"
    )
    recipe.add_argument("--global-batch", type=positive, help="images of all ranks in a step, instead of --batch-size")
    recipe.add_argument("--epochs", type=real, help="default 90")
    recipe.add_argument("--steps", type=positive, help="stop after so many steps, whatever the epochs")
    recipe.add_argument("--lr", type=real, default=0.1, help="for 256 images a step; scaled with them")
    recipe.add_argument("--warmup-epochs", type=real, default=5.0, help="the rate rises to the scaled one")
    recipe.add_argument(
        "--decay", choices=("step", "cosine", "none"), default="step", help="step: a tenth at 30, 60, 80"
    )
    recipe.add_argument("--momentum", type=part, default=0.9)
    recipe.add_argument("--weight-decay", type=real, default=5e-5, help="not of biases and normalisation")
    recipe.add_argument("--label-smoothing", type=part, default=0.1)
    recipe.add_argument("--width", type=positive, default=64, help="channels of the first layer; small ones for trying")
    recipe.add_argument("--seed", type=int, default=0)
    speed = found.add_argument_group("speed")
    speed.add_argument("--amp", choices=("bf16", "off"), help="mixed precision; default bf16 on a GPU")
    keep = found.add_argument_group("what is kept")
    keep.add_argument("--out", type=Path, default=Path("outputs"))
    keep.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="under Muster the run's own")
    keep.add_argument("--resume-from", type=Path, metavar="FOLDER", help="a checkpoint of another run, or several")
    keep.add_argument("--checkpoint-every", type=positive, metavar="STEPS", help="also in the middle of epochs")
    keep.add_argument("--eval-every", type=positive, default=1, metavar="EPOCHS")
    keep.add_argument("--log-every", type=positive, metavar="STEPS", help="default 50 on a GPU, 1 on a CPU")
    keep.add_argument("--warmup-steps", type=not_negative, default=5, help="not counted in the throughput")
    return found


def completed(args: argparse.Namespace, ranks: int, on_gpu: bool) -> argparse.Namespace:
    """Fill in what depends on the ranks and the device; a combination that does not fit ends the script."""
    args.image_size = args.image_size or (224 if on_gpu else 96)
    args.log_every = args.log_every or (50 if on_gpu else 1)
    args.amp = args.amp or ("bf16" if on_gpu else "off")
    whole, per_rank = args.global_batch, args.batch_size
    if per_rank is not None and whole is not None and per_rank * ranks != whole:
        raise SystemExit(f"--global-batch {whole} is not --batch-size {per_rank} on {ranks} ranks: give one of the two")
    if whole is not None and whole % ranks:
        near = max(ranks, whole - whole % ranks)
        raise SystemExit(f"--global-batch {whole} cannot be divided among {ranks} ranks; {near} can")
    args.batch_size = whole // ranks if whole is not None else per_rank or (256 if on_gpu else 16)
    args.global_batch = args.batch_size * ranks
    keeps = args.checkpoints is not None or "MUSTER_CHECKPOINT_DIR" in os.environ
    for name in ("resume_from", "checkpoint_every"):
        if getattr(args, name) is not None and not keeps:
            raise SystemExit(f"--{name.replace('_', '-')} needs --checkpoints, where they go")
    if args.resume_from is not None and not args.resume_from.is_dir():
        raise SystemExit(f"--resume-from: there is no folder {args.resume_from}")
    if args.epochs == 0:
        raise SystemExit("--epochs 0: it must be above zero")
    args.epochs = args.epochs or (90.0 if args.steps is None else None)
    return args


def positive(text: str, least: int = 1) -> int:
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"{value} is not at least {least}")
    return value


def not_negative(text: str) -> int:
    return positive(text, 0)


def real(text: str, most: float = sys.float_info.max) -> float:
    value = float(text)
    if not 0 <= value <= most:
        limit = "a number of at least 0" if most > 1 else f"from 0 to {most:g}"
        raise argparse.ArgumentTypeError(f"{text} is not {limit}")
    return value


def part(text: str) -> float:
    return real(text, 1.0)
