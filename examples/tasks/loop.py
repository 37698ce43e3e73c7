"""The training loop that the tasks of this folder share: data parallel, resumable, with throughput figures."""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

from muster.run import Run
from muster.training import Checkpointer, ResumableSampler, Throughput, World, join, learning_rate

Loss = Callable[[nn.Module, list[Tensor]], Tensor]
Evaluate = Callable[[nn.Module, World], dict[str, float]]


def parser(about: str, *, epochs: int, lr: float, batch_size: int) -> argparse.ArgumentParser:
    """The arguments that every task has."""
    found = argparse.ArgumentParser(description=about)
    found.add_argument("--epochs", type=positive, default=epochs)
    found.add_argument("--steps", type=positive, help="stop after so many steps, whatever the epochs")
    found.add_argument("--batch-size", type=positive, default=batch_size, help="samples per rank and step")
    found.add_argument(
        "--eval-every", type=positive, default=1, metavar="EPOCHS", help="evaluate and save so often, and at the end"
    )
    found.add_argument("--lr", type=float, default=lr)
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--compile", action="store_true", help="compile model and loss (worth it on a GPU)")
    found.add_argument("--out", type=Path, default=Path("outputs"))
    found.add_argument(
        "--checkpoints", type=Path, help="a folder to save to and resume from; under Muster the run's own"
    )
    return found


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def train(
    args: argparse.Namespace, world: World, model: nn.Module, data: TensorDataset, loss: Loss, evaluate: Evaluate
) -> dict[str, float]:
    """Train to the end, from the last checkpoint if there is one; returns the figures of the last evaluation."""
    run = Run.get_context()
    model.to(world.device)
    network: nn.Module = model
    if world.size > 1:
        network = DistributedDataParallel(model, process_group=world.group)
    on_gpu = world.device.type == "cuda"
    torch.backends.cudnn.benchmark = on_gpu
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=on_gpu)
    sampler = ResumableSampler(len(data), args.batch_size, rank=world.rank, world_size=world.size, seed=args.seed)
    loader = DataLoader(
        Together([tensor.to(world.device) for tensor in data.tensors]),
        batch_sampler=sampler,
        collate_fn=list,
        generator=torch.Generator().manual_seed(args.seed),
    )
    checkpointer = None
    progress: dict[str, Any] = {"step": 0, "sampler": sampler.state(), "figures": {}}
    if args.checkpoints is not None or "MUSTER_CHECKPOINT_DIR" in os.environ:
        checkpointer = Checkpointer(model, optimizer, args.checkpoints)
        progress = checkpointer.load() or progress
    sampler.restore(progress["sampler"])
    compute = torch.compile(loss) if args.compile else loss
    throughput = Throughput(world.device, warmup_steps=5)
    total = args.steps or args.epochs * sampler.full_epoch_steps
    network.train()
    while progress["step"] < total:
        for batch in throughput.wait_for(sampler.counted(loader)):
            epoch = progress["step"] / sampler.full_epoch_steps
            rate = learning_rate(
                epoch,
                base=args.lr,
                scale=1.0,
                warmup_epochs=0.5,
                decay="cosine",
                epochs=total / sampler.full_epoch_steps,
            )
            for group in optimizer.param_groups:
                group["lr"] = rate
            with torch.autocast(world.device.type, torch.bfloat16, enabled=on_gpu):
                value = compute(network, batch)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            throughput.step(len(batch[0]))
            progress["step"] += 1
            if progress["step"] % 20 == 0 or progress["step"] == total:
                mean = float(world.mean(value))
                if world.rank == 0:
                    print(f"step {progress['step']}/{total}  loss {mean:.4f}  learning rate {rate:.2g}", flush=True)
                    run.log("loss", mean, step=progress["step"])
            if progress["step"] == total:
                break
        if progress["step"] < total:
            sampler.set_epoch(sampler.epoch + 1)
            if sampler.epoch % args.eval_every:
                continue
        with throughput.paused():
            network.eval()
            progress["figures"] = figures = evaluate(model, world)
            network.train()
        if world.rank == 0:
            print("  ".join(f"{name} {value:.3f}" for name, value in figures.items()), flush=True)
            for name, value in figures.items():
                run.log(name, value, step=progress["step"])
        if checkpointer is not None:
            progress["sampler"] = sampler.state()
            checkpointer.save(progress["step"], progress)
    if checkpointer is not None:
        checkpointer.close()
    # Figures of an earlier attempt, if this one found nothing left to do.
    rates, figures = throughput.total(world), progress["figures"]
    if world.rank == 0:
        args.out.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), args.out / "model.pt")
        summary = {**figures, "samples_per_s": rates["samples_per_s"], "ranks": world.size, "at": time.time()}
        (args.out / "figures.json").write_text(json.dumps(summary, indent=1))
        print(f"{rates['samples_per_s']:.1f} samples/s; {args.out}/model.pt is the model", flush=True)
    world.leave()
    return figures


class Together(Dataset[list[Tensor]]):
    """All samples as tensors on the device, where they fit; a whole batch is taken at once."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        chosen = torch.tensor(indices, device=self._tensors[0].device)
        return [tensor[chosen] for tensor in self._tensors]


def start(args: argparse.Namespace) -> World:
    """Join the other ranks, and seed so that all begin with the same weights."""
    world = join()
    torch.manual_seed(args.seed)
    return world


def shares(tensors: list[Tensor], world: World, size: int) -> Any:
    """This rank's part of the evaluation data, in batches."""
    mine = [tensor[world.rank :: world.size] for tensor in tensors]
    for begin in range(0, len(mine[0]), size):
        yield [tensor[begin : begin + size].to(world.device) for tensor in mine]
