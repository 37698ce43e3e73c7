"""PyTorch with Horovod."""

import hashlib

import horovod.torch as hvd
import torch
from torch import nn

hvd.init()
on_gpu = torch.cuda.device_count() >= hvd.local_size()
device = torch.device("cuda", hvd.local_rank()) if on_gpu else torch.device("cpu")

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

data = torch.Generator().manual_seed(hvd.rank())
losses = []
for _ in range(60):
    x = torch.randn(64, 8, generator=data).to(device)
    y = x.sum(dim=1, keepdim=True)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

weights = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
fingerprint = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
print(f"rank {hvd.rank()} of {hvd.size()}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
hvd.shutdown()
