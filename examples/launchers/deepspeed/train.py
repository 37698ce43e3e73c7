"""DeepSpeed with ZeRO: stage 1 shards the optimizer's state, 2 the gradients too, 3 the weights too."""

import argparse
import hashlib
import os
import time

import deepspeed
import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--local_rank", type=int, help="DeepSpeed's own launcher passes it")
    args = parser.parse_args()

    # Finds the ranks in PyTorch's variables, or asks MPI; with MPI it would use port 29500 even if it is taken.
    deepspeed.init_distributed(distributed_port=int(os.environ["MASTER_PORT"]))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    config = {
        "train_micro_batch_size_per_gpu": 64,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": args.stage},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(60):
        x = torch.randn(64, 8, generator=data).to(engine.device)
        loss = nn.functional.mse_loss(engine(x), x.sum(dim=1, keepdim=True))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())

    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        weights = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
    fingerprint = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
    print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
    time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
