"""A plain PyTorch loop that Accelerate spreads over the processes of `accelerate launch`."""

import hashlib
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
torch.manual_seed(0)
x = torch.randn(2048, 8)
loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

losses = []
for _ in range(4):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())

weights = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
fingerprint = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
rank, world_size = accelerator.process_index, accelerator.num_processes
print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort
accelerator.end_training()
