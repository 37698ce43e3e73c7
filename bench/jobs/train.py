"""A small residual network on 2 gloo ranks, exactly resumable: the same losses whether or not it was killed.

Every step is checkpointed by rank 0 and published; data and weights follow from the step and the seed alone.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--pause-s", type=float, default=0.0)
parser.add_argument("--checkpoints", default=os.environ.get("MUSTER_CHECKPOINT_DIR", "checkpoints"))
parser.add_argument("--resume", default=os.environ.get("MUSTER_RESUME_DIR"))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.inner(images))


def main() -> None:
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = load(Path(options.resume) / "state.pt", net, optimizer) if options.resume else 0
    for step in range(begin, options.steps):
        source = torch.Generator().manual_seed(step * 1000 + rank)
        images, labels = torch.randn(4, 3, 16, 16, generator=source), torch.randint(10, (4,), generator=source)
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        # One write per line, since a launcher mixes the output of its children.
        print(f"step {step} rank {rank} loss {loss.item().hex()} at {time.time():.6f}", flush=True)
        # A checkpoint must be of a step that every rank has reported.
        dist.barrier()
        if rank == 0:
            save(Path(options.checkpoints), step + 1, net, optimizer)
        # The others must not be a step ahead of the last checkpoint.
        dist.barrier()
        time.sleep(options.pause_s)
    dist.destroy_process_group()


def save(folder: Path, step: int, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "state.pt.tmp"
    torch.save({"step": step, "net": net.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
    unfinished.rename(folder / "state.pt")


def load(path: Path, net: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


if __name__ == "__main__":
    main()
