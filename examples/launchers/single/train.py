"""One process, as on a laptop."""

import hashlib

import torch
from torch import nn

from muster import Run

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
run = Run.get_context()

losses = []
for step in range(60):
    x = torch.randn(64, 8).to(device)
    y = x.sum(dim=1, keepdim=True)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    run.log("loss", loss.item(), step=step)

weights = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
fingerprint = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
print(f"rank 0 of 1: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
