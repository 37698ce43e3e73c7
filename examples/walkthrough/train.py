"""Learns to tell dark pictures from bright ones, data parallel, and keeps the model in outputs/model.pt."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from muster.run import Run
from muster.training import ResumableSampler, join

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()

run, world = Run.get_context(), join()
files = sorted((args.data / "train").glob("*.pt"))
pictures = torch.stack([torch.load(file, weights_only=True) for file in files])
labels = torch.tensor([float(file.name.startswith("bright")) for file in files])
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0))
network = DistributedDataParallel(model) if world.size > 1 else model
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
sampler = ResumableSampler(len(files), 10, rank=world.rank, world_size=world.size)
loader = DataLoader(TensorDataset(pictures, labels), batch_sampler=sampler)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(network(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if world.rank == 0:
        run.log("loss", loss.item(), step=epoch)
    run.progress(epoch + 1, args.epochs, "epochs")
if world.rank == 0:
    Path("outputs").mkdir(exist_ok=True)
    torch.save(model.state_dict(), "outputs/model.pt")
world.leave()
