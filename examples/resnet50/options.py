"""The arguments, which are the same however the script is started."""

import argparse
import importlib.util
import os
import sys
from argparse import BooleanOptionalAction
from pathlib import Path

from pixels import gpu_can_decode

from muster.training import World

IMAGENET = 1_281_167
COMPILE = ("off", "tuned", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
RATES = {"sgd": 0.1, "lars": 2.5}
"""Learning rates for 256 images per step."""
WITH_GRAPHS = ("reduce-overhead", "max-autotune")


def arguments(world: World, given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, and fill in what depends on the ranks and the device."""
    args = parser().parse_args(given)
    on_gpu = world.device.type == "cuda"
    args.image_size = args.image_size or (224 if on_gpu else 96)
    args.log_every = args.log_every or (50 if on_gpu else 1)
    args.batch_size, args.global_batch = batch_sizes(
        args.batch_size or (None if args.global_batch else 256 if on_gpu else 16),
        args.global_batch,
        world.size,
        args.accumulate,
    )
    args.lr = RATES[args.optimizer] if args.lr is None else args.lr
    args.amp = args.amp or ("bf16" if on_gpu else "off")
    args.compile = args.compile or ("tuned" if on_gpu else "off")
    if args.accumulate > 1 and args.compile in WITH_GRAPHS:
        others = ", ".join(mode for mode in COMPILE if mode not in WITH_GRAPHS)
        raise SystemExit(
            f"--compile {args.compile} does not go with --accumulate {args.accumulate}: its CUDA graphs overwrite the "
            f"gradients that are added up; give one of {others}"
        )
    args.workers = (os.cpu_count() or 1) // world.local_size if args.workers is None else args.workers
    if args.decode == "gpu" and not gpu_can_decode(world.device):
        raise SystemExit(f"--decode gpu: torchvision cannot decode JPEGs on this {world.device.type}")
    if args.decode is None:
        args.decode = "gpu" if args.data is not None and gpu_can_decode(world.device) else "cpu"
    has_horovod = importlib.util.find_spec("horovod") is not None
    if args.backend is None:
        args.backend = "horovod" if has_horovod and world.launcher == "mpi" else "torch"
    elif args.backend == "horovod" and world.launcher != "mpi":
        raise SystemExit("--backend horovod needs ranks that mpirun started (`distribution: {type: mpi}`)")
    elif args.backend == "horovod" and not has_horovod:
        raise SystemExit(
            "--backend horovod: Horovod is not installed here (`environment: horovod-torch` or `horovod-compat`)"
        )
    if args.channels_last is None:
        args.channels_last = args.backend != "horovod"
    elif args.channels_last and args.backend == "horovod":
        raise SystemExit("--channels-last does not go with Horovod, which takes only gradients in the usual layout")
    if args.noise_scale and (world.size == 1 or args.backend == "horovod"):
        raise SystemExit("--noise-scale compares what the ranks found: it needs several, and --backend torch")
    if args.resume_from is not None and not args.resume_from.is_dir():
        raise SystemExit(f"--resume-from: there is no folder {args.resume_from}")
    if args.resume_from is not None and args.checkpoints is None and "MUSTER_CHECKPOINT_DIR" not in os.environ:
        raise SystemExit("--resume-from needs --checkpoints, where its own go")
    if args.checkpoint_every and args.checkpoints is None and "MUSTER_CHECKPOINT_DIR" not in os.environ:
        raise SystemExit("--checkpoint-every needs --checkpoints, where they go")
    if args.epochs is None:
        args.epochs = 90.0 if args.steps is None else None
    elif args.epochs == 0:
        raise SystemExit("--epochs 0: it must be above zero")
    return args


def batch_sizes(per_rank: int | None, whole: int | None, ranks: int, parts: int) -> tuple[int, int]:
    """Images per rank and step, and of all ranks: a mini-batch is divided into one micro-batch for each rank."""
    if per_rank is not None and whole is not None and per_rank * ranks != whole:
        raise SystemExit(f"--global-batch {whole} is not --batch-size {per_rank} on {ranks} ranks: give one of the two")
    if whole is not None and whole % ranks:
        near = max(ranks, whole - whole % ranks)
        raise SystemExit(f"--global-batch {whole} cannot be divided among {ranks} ranks; {near} can")
    found = whole // ranks if whole is not None else per_rank
    assert found is not None
    if found % parts:
        near = max(parts, found - found % parts)
        raise SystemExit(f"{found} images per rank cannot be divided into --accumulate {parts} equal parts; {near} can")
    return found, found * ranks


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


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description="Trains ResNet-50, data parallel: alone, under torchrun, under mpirun, or under Muster."
    )
    data = found.add_argument_group("data")
    data.add_argument(
        "--data", type=Path, metavar="FOLDER", help="holds train and val: a folder per class, or .tar shards"
    )
    data.add_argument(
        "--synthetic", type=positive, default=IMAGENET, metavar="N", help="without --data: so many made-up images"
    )
    data.add_argument("--synthetic-val", type=not_negative, default=0, metavar="N", help="and so many to validate on")
    data.add_argument("--classes", type=positive, default=10, help="of made-up images; a folder says how many it has")
    data.add_argument("--image-size", type=positive, metavar="PIXELS", help="default 224 on a GPU, 96 on a CPU")
    data.add_argument(
        "--augment", action=BooleanOptionalAction, default=True, help="train on random views, not on the middle"
    )
    data.add_argument(
        "--workers", type=not_negative, help="processes that read and decode, per rank; default: the rank's cores"
    )
    data.add_argument("--decode", choices=("cpu", "gpu"), help="JPEGs; default: on the GPU where torchvision can")
    recipe = found.add_argument_group("recipe")
    recipe.add_argument(
        "--batch-size", type=positive, help="images per rank and step; default 256 on a GPU, 16 on a CPU"
    )
    recipe.add_argument("--global-batch", type=positive, help="images of all ranks in a step, instead of --batch-size")
    recipe.add_argument(
        "--accumulate", type=positive, default=1, metavar="PARTS", help="compute a rank's images in so many parts"
    )
    recipe.add_argument("--epochs", type=real, help="default 90")
    recipe.add_argument("--steps", type=positive, help="stop after so many steps, whatever the epochs")
    recipe.add_argument("--optimizer", choices=("sgd", "lars"), default="sgd")
    recipe.add_argument(
        "--lr", type=real, help="for 256 images a step; default 0.1, scaled with them, or 2.5 by their root with lars"
    )
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
    speed.add_argument(
        "--compile",
        choices=COMPILE,
        help="mode of torch.compile; default: tuned on a GPU, off on a CPU",
    )
    speed.add_argument(
        "--channels-last", action=BooleanOptionalAction, help="memory layout; default except with Horovod"
    )
    speed.add_argument(
        "--backend", choices=("torch", "horovod"), help="default: Horovod under mpirun where it is installed"
    )
    keep = found.add_argument_group("what is kept")
    keep.add_argument("--out", type=Path, default=Path("outputs"))
    keep.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="under Muster the run's own")
    keep.add_argument("--resume-from", type=Path, metavar="FOLDER", help="a checkpoint of another run, or several")
    keep.add_argument("--checkpoint-every", type=positive, metavar="STEPS", help="also in the middle of epochs")
    keep.add_argument("--eval-every", type=positive, default=1, metavar="EPOCHS")
    keep.add_argument("--log-every", type=positive, metavar="STEPS", help="default 50 on a GPU, 1 on a CPU")
    keep.add_argument("--warmup-steps", type=not_negative, default=5, help="not counted in the throughput")
    keep.add_argument(
        "--noise-scale", action="store_true", help="estimate it, and say whether a larger batch would pay"
    )
    return found
