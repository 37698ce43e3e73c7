"""Data parallel with DistributedDataParallel; who starts the processes does not matter."""

import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from muster import Run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    # torch.distributed.launch without --use_env passes this; before PyTorch 2 it was spelled --local_rank.
    parser.add_argument("--local-rank", "--local_rank", type=int, default=os.environ.get("LOCAL_RANK"))
    args = parser.parse_args()

    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", args.local_rank) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    network = DistributedDataParallel(model)  # sends the weights of rank 0 to all
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    run = Run.get_context()

    data = torch.Generator().manual_seed(rank)  # every rank has its own data
    losses = []
    for step in range(args.steps):
        x = torch.randn(64, 8, generator=data).to(device)
        y = x.sum(dim=1, keepdim=True)
        loss = nn.functional.mse_loss(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if rank == 0:
            run.log("loss", loss.item(), step=step)

    print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint(model)}")
    time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort
    dist.destroy_process_group()


def fingerprint(model: nn.Module) -> str:
    """The same on two ranks if their weights are the same."""
    weights = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]


if __name__ == "__main__":
    main()
