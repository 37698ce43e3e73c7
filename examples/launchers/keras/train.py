"""A Keras 3 model on the PyTorch backend, wrapped in DistributedDataParallel."""

import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

os.environ["KERAS_BACKEND"] = "torch"
import keras


def main() -> None:
    on_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    # Keras creates its variables on its current device.
    with keras.device(str(device)):
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
    network = DistributedDataParallel(model)
    loss_of = keras.losses.MeanSquaredError()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(60):
        x = torch.randn(64, 8, generator=data).to(device)
        y = x.sum(dim=1, keepdim=True)
        loss = loss_of(y, network(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    weights = b"".join(weight.tobytes() for weight in model.get_weights())
    fingerprint = hashlib.sha256(weights).hexdigest()[:12]
    print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
    time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
