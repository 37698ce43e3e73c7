"""Pipeline parallel: each rank holds one stage of the model and passes micro-batches on."""

import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    is_first, is_last = rank == 0, rank == world_size - 1

    torch.manual_seed(rank)
    layers = [nn.Linear(8 if is_first else 32, 1 if is_last else 32)]
    stage = nn.Sequential(*layers, *([] if is_last else [nn.ReLU()])).to(device)
    schedule = Schedule1F1B(
        PipelineStage(stage, rank, world_size, device), n_microbatches=world_size, loss_fn=nn.functional.mse_loss
    )
    optimizer = torch.optim.Adam(stage.parameters(), lr=0.01)

    data = torch.Generator().manual_seed(0)  # the first rank needs the inputs, the last one the targets
    losses = []
    for _ in range(60):
        x = torch.randn(64, 8, generator=data).to(device)
        y = x.sum(dim=1, keepdim=True)
        of_microbatches: list[torch.Tensor] = []
        optimizer.zero_grad()
        if is_first:
            schedule.step(x)
        elif is_last:
            schedule.step(target=y, losses=of_microbatches)
            losses.append(torch.stack(of_microbatches).mean().item())
        else:
            schedule.step()
        optimizer.step()

    of_ranks = [([], []) for _ in range(world_size)]
    dist.all_gather_object(of_ranks, (losses, [parameter.detach().cpu() for parameter in stage.parameters()]))
    losses = of_ranks[-1][0]
    weights = torch.cat([parameter.flatten() for _, parameters in of_ranks for parameter in parameters])
    fingerprint = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
    print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
    time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
