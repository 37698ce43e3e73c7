"""Trains ResNet-50 on synthetic images, data parallel: alone, under torchrun, or under Muster."""

import argparse
import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from model import ResNet50
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from muster import Run


def main() -> None:
    args = arguments()
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        dist.init_process_group("gloo")
    device, group = choose_device(world_size)
    on_gpu = device.type == "cuda"
    args.image_size = args.image_size or (224 if on_gpu else 96)
    args.batch_size = args.batch_size or (256 if on_gpu else 16)
    args.log_every = args.log_every or (10 if on_gpu else 1)
    data = SyntheticImages(args, device, rank, world_size)
    args.steps = args.steps or args.epochs * data.steps_per_epoch
    args.warmup_steps = min(args.warmup_steps, args.steps - 1)

    torch.manual_seed(args.seed)
    model = ResNet50(args.classes).to(device, memory_format=torch.channels_last)
    network: nn.Module = model
    if world_size > 1:
        network = DistributedDataParallel(network, process_group=group, gradient_as_bucket_view=True)
    if on_gpu and args.compile:
        network = torch.compile(network)

    if rank == 0:
        size = args.image_size
        print(f"ResNet-50, {args.synthetic} synthetic images of {size}x{size} in {args.classes} classes")
        print(f"{world_size} x {args.batch_size} images a step, {args.steps} steps, on {device.type}", flush=True)
    losses, seconds = train(args, network, data, device, rank, world_size)
    report(args, model, losses, seconds, rank, world_size)
    if world_size > 1:
        dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synthetic", type=int, default=1_281_167, metavar="N", help="number of images (as ImageNet)")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--image-size", type=int, help="pixels; default 224 on a GPU, 96 on a CPU")
    parser.add_argument("--batch-size", type=int, help="images per rank and step; default 256 on a GPU, 16 on a CPU")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="stop after so many steps, whatever the epochs")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate for 256 images a step; scaled with them")
    parser.add_argument("--warmup-steps", type=int, default=5, help="learning rate rises, throughput is not counted")
    parser.add_argument("--log-every", type=int, metavar="STEPS", help="default 10 on a GPU, 1 on a CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="on a GPU: run eagerly")
    parser.add_argument("--out", type=Path, default=Path("outputs"))
    return parser.parse_args()


def choose_device(world_size: int) -> tuple[torch.device, dist.ProcessGroup | None]:
    """A GPU if every rank has one, and NCCL if none is shared; gloo otherwise."""
    device, identity = torch.device("cpu"), ""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        identity = str(torch.cuda.get_device_properties(device).uuid)
    if world_size == 1:
        return device, None
    identities = [""] * world_size
    dist.all_gather_object(identities, identity)
    if not all(identities):
        return torch.device("cpu"), None
    return device, dist.new_group(backend="nccl") if len(set(identities)) == world_size else None


class SyntheticImages:
    """Images that can be learned: each class has a pattern, each image is its class's pattern in fresh noise."""

    def __init__(self, args: argparse.Namespace, device: torch.device, rank: int, world_size: int) -> None:
        self.count, self.classes, self.batch_size = args.synthetic, args.classes, args.batch_size
        self.rank, self.world_size = rank, world_size
        self.steps_per_epoch = self.count // (self.batch_size * world_size)
        if self.steps_per_epoch == 0:
            raise SystemExit(f"--synthetic {self.count} is less than one step: {world_size} x {self.batch_size} images")
        coarse = torch.randn(self.classes, 3, 8, 8, generator=torch.Generator().manual_seed(1))
        self.patterns = nn.functional.interpolate(coarse, args.image_size, mode="bilinear").to(device)
        self.noise = torch.Generator(device).manual_seed(2 + rank)

    def epoch(self, number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """This rank's share of the shuffled images, batch by batch."""
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(number))
        labels = (order[self.rank :: self.world_size] % self.classes).to(self.patterns.device)
        for batch in labels.split(self.batch_size)[: self.steps_per_epoch]:
            images = self.patterns[batch]
            noise = torch.randn(images.shape, generator=self.noise, device=images.device)
            yield (images + noise).contiguous(memory_format=torch.channels_last), batch


def train(
    args: argparse.Namespace,
    network: nn.Module,
    data: SyntheticImages,
    device: torch.device,
    rank: int,
    world_size: int,
) -> tuple[list[torch.Tensor], float]:
    """Returns the loss of every step, and the seconds that the steps after the warm-up took."""
    global_batch = args.batch_size * world_size
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=5e-5)
    run = Run.get_context()
    losses: list[torch.Tensor] = []
    mark_step, mark_time = 0, time.perf_counter()
    batches = (batch for epoch in itertools.count() for batch in data.epoch(epoch))
    for step, (images, labels) in enumerate(itertools.islice(batches, args.steps)):
        if step == args.warmup_steps:
            mark_step, mark_time = step, finished(device)
            began = mark_time
        for parameters in optimizer.param_groups:
            parameters["lr"] = args.lr * global_batch / 256 * schedule(step, args.warmup_steps, args.steps)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        done = step + 1
        if rank == 0 and (done % args.log_every == 0 or done == args.steps):
            value, now = loss.item(), time.perf_counter()
            rate = (done - mark_step) * global_batch / (now - mark_time)
            mark_step, mark_time = done, now
            print(f"step {done}/{args.steps}  loss {value:.4f}  {rate:.1f} images/s", flush=True)
            run.log("loss", value, step=done)
            if done < args.steps:  # the last figure is that of the whole run
                run.log("images_per_sec", rate, step=done)
            run.progress(done, args.steps, "steps")
    return losses, finished(device) - began


def schedule(step: int, warmup_steps: int, total_steps: int) -> float:
    """Linear warm-up, then a cosine down to nothing."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / max(1, total_steps - warmup_steps)))


def finished(device: torch.device) -> float:
    """The time, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def report(
    args: argparse.Namespace,
    model: nn.Module,
    losses: list[torch.Tensor],
    seconds: float,
    rank: int,
    world_size: int,
) -> None:
    """Rank 0 prints and writes the figures of all ranks, and the model."""
    counted = args.steps - args.warmup_steps
    tail = losses[-max(1, args.steps // 10) :]
    mine = (counted * args.batch_size / seconds, losses[0].item(), torch.stack(tail).mean().item())
    of_ranks = [mine] * world_size
    if world_size > 1:
        dist.all_gather_object(of_ranks, mine)
    if rank != 0:
        return
    rates, first_losses, final_losses = zip(*of_ranks, strict=True)
    figures = {
        "images_per_sec": sum(rates),
        "images_per_sec_per_rank": rates,
        "world_size": world_size,
        "batch_size_per_rank": args.batch_size,
        "image_size": args.image_size,
        "steps": args.steps,
        "warmup_steps": args.warmup_steps,
        "first_loss": sum(first_losses) / world_size,
        "final_loss": sum(final_losses) / world_size,
    }
    Run.get_context().log("images_per_sec", figures["images_per_sec"], step=args.steps)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), args.out / "model.pt")
    (args.out / "throughput.json").write_text(json.dumps(figures, indent=2) + "\n")
    per_rank = ", ".join(f"{rate:.1f}" for rate in rates)
    print(f"{sum(rates):.1f} images/s in total, {per_rank} per rank ({args.warmup_steps} warm-up steps left out)")
    print(f"loss {figures['first_loss']:.4f} at first, {figures['final_loss']:.4f} over the last {len(tail)} steps")
    print(f"{args.out}/model.pt is the model, {args.out}/throughput.json has the figures", flush=True)


if __name__ == "__main__":
    main()
