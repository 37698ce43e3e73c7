"""Fully sharded data parallel: each rank holds a part of every weight, gradient and optimizer state."""

import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same weights everywhere, before they are sharded
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    mesh = init_device_mesh(device.type, (world_size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(60):
        x = torch.randn(64, 8, generator=data).to(device)
        y = x.sum(dim=1, keepdim=True)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint(model)}")
    time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort
    dist.destroy_process_group()


def fingerprint(model: nn.Module) -> str:
    """A fingerprint of the gathered weights: the same on two ranks if their weights are the same."""
    weights = torch.cat([parameter.full_tensor().detach().cpu().flatten() for parameter in model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]


if __name__ == "__main__":
    main()
