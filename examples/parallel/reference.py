"""Training in a single process: the reference for every way to divide the work."""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from language import BEST_ACCURACY, BEST_LOSS, layers, loss_of, pairs, texts, transformer
from timeline import Timeline
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

from muster.run import Run
from muster.training import World


@dataclass(frozen=True)
class Task:
    """A task to learn: a model, the inputs and targets of a step, and the loss."""

    model: Callable[[argparse.Namespace], nn.Sequential]
    batch: Callable[[int, int], tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]


@dataclass
class Result:
    """The result of a training: its losses, and the full weights."""

    losses: list[float]
    weights: dict[str, Tensor]
    figures: dict[str, float] = field(default_factory=dict)
    is_exact: bool = True
    """Whether a single process would have the same weights."""


def text_batch(count: int, seed: int) -> tuple[Tensor, Tensor]:
    text = texts(count, seed)
    return text[:, :-1], text[:, 1:]


TEXTS = Task(lambda args: transformer(args.width, args.blocks), text_batch, loss_of)
PAIRS = Task(lambda args: layers(args.width, args.blocks), pairs, cross_entropy)


def parser(
    about: str, *, steps: int = 240, batch_size: int = 32, width: int = 32, lr: float = 0.005, optimizer: str = "adamw"
) -> argparse.ArgumentParser:
    """The arguments that all ways share."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--steps", type=int, default=steps)
    found.add_argument("--batch-size", type=int, default=batch_size, help="samples of a step, of all ranks together")
    found.add_argument("--blocks", type=int, default=4, help="of the Transformer, or layers of the plain network")
    found.add_argument("--width", type=int, default=width)
    found.add_argument("--lr", type=float, default=lr)
    found.add_argument("--optimizer", choices=("adamw", "sgd"), default=optimizer)
    found.add_argument("--check", action="store_true", help="train one process too, both in double precision; compare")
    found.add_argument("--timeline", action="store_true", help="record two steps; picture.py draws them")
    found.add_argument("--out", type=Path, default=Path("outputs"))
    return found


def model_of(args: argparse.Namespace, task: Task = TEXTS) -> nn.Sequential:
    """The model, in double precision if results are compared: then they differ only by the order of additions."""
    return task.model(args).to(torch.float64 if args.check else torch.float32)


def batch_of(args: argparse.Namespace, task: Task, step: int) -> tuple[Tensor, Tensor]:
    """The whole batch of a step, of which each rank takes its part."""
    inputs, targets = task.batch(args.batch_size, step + 1)
    return inputs.double() if args.check and inputs.is_floating_point() else inputs, targets


def optimizer_of(args: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=args.lr, foreach=False)
    # One tensor at a time: `foreach` refuses to mix tensors that are split with tensors that are not.
    return torch.optim.AdamW(model.parameters(), lr=args.lr, foreach=False)


def alone(args: argparse.Namespace, task: Task = TEXTS) -> Result:
    """The same model, batches and optimizer in one process."""
    model = model_of(args, task)
    optimizer = optimizer_of(args, model)
    losses = []
    for step in range(args.steps):
        inputs, targets = batch_of(args, task, step)
        loss = task.loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Result(losses, whole(model))


def whole(model: nn.Module) -> dict[str, Tensor]:
    """The full weights, gathered if they are split; every rank must call this."""
    named = {name: value.detach() for name, value in model.state_dict().items()}
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in named.items()}


def difference(one: Result, other: Result) -> float:
    """The largest difference of any loss or weight."""
    if one.weights.keys() != other.weights.keys() or len(one.losses) != len(other.losses):
        return float("inf")
    weights = [float((one.weights[name] - other.weights[name]).abs().max()) for name in one.weights]
    losses = [abs(a - b) for a, b in zip(one.losses, other.losses, strict=True)]
    return max([*weights, *losses])


def accuracy(args: argparse.Namespace, weights: dict[str, Tensor]) -> float:
    """How often the plain network guesses right, on pairs that it has not seen."""
    model = model_of(args, PAIRS)
    model.load_state_dict(weights)
    inputs, targets = pairs(4000, seed=1_000_000)
    with torch.no_grad():
        return float((model(inputs.to(next(model.parameters()))).argmax(1) == targets).float().mean())


def finish(
    args: argparse.Namespace, world: World, result: Result, timeline: Timeline, began: float, task: Task = TEXTS
) -> None:
    """Report how good the result is, and compare it with the reference."""
    figures = {"loss": late(result), "best_loss": BEST_LOSS, "seconds": time.monotonic() - began, **result.figures}
    if world.rank == 0:
        if task is PAIRS:
            figures |= {"accuracy": accuracy(args, result.weights), "best_accuracy": BEST_ACCURACY}
        if args.check:
            single = alone(args, task)
            figures["difference" if result.is_exact else "loss_alone"] = (
                difference(result, single) if result.is_exact else late(single)
            )
        run = Run.get_context()
        for step in sorted({*range(10, len(result.losses), 10), len(result.losses)}):
            # The mean of twenty steps, as it is printed.
            run.log("loss", late(result, step), step=step)
        print("  ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "figures.json").write_text(json.dumps({**figures, "ranks": world.size}, indent=1))
    timeline.write(args.out)
    world.leave()


def late(result: Result, step: int | None = None) -> float:
    """The mean loss of the last twenty steps, or of those up to a step."""
    last = result.losses[:step][-20:]
    return sum(last) / len(last)
