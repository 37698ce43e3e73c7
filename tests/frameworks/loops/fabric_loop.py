# The loop of docs/training.md with Lightning Fabric.
import argparse
import os
import signal
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=16, help="of a rank, in one step")
parser.add_argument("--accumulate", type=int, default=2, help="parts of a step that are computed one after the other")
parser.add_argument("--save-every", type=int, default=10)
args = parser.parse_args()

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
fabric = Fabric(devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]))
fabric.launch()
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
plain = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
model, optimizer = fabric.setup(plain, optimizer)
generator = torch.Generator().manual_seed(0)
loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, generator=generator)
loader = fabric.setup_dataloaders(loader)

torch.manual_seed(fabric.global_rank)  # dropout of its own on every rank
state = {"model": model, "average": average, "optimizer": optimizer, "scheduler": scheduler, "epoch": 0, "done": 0}
if Path("saved.ckpt").exists():
    fabric.load("saved.ckpt", state)
step = state["epoch"] * len(loader) + state["done"]
is_last = False

while state["epoch"] < args.epochs and not is_last:
    for number, (inputs, targets) in enumerate(loader):
        if number < state["done"]:
            continue  # the batches before are read, and thrown away
        parts = zip(inputs.tensor_split(args.accumulate), targets.tensor_split(args.accumulate), strict=True)
        optimizer.zero_grad()
        for part, (x, y) in enumerate(parts, 1):
            with fabric.no_backward_sync(model, enabled=part < args.accumulate):
                loss = nn.functional.mse_loss(model(x), y) / args.accumulate
                fabric.backward(loss)
        optimizer.step()
        scheduler.step()
        average.update_parameters(plain)
        step += 1
        state["done"] = number + 1
        # Each rank hears of a signal at another moment, so they agree on the step after which they stop.
        is_last = bool(fabric.all_reduce(torch.tensor(float(bool(stopping))), reduce_op="sum"))
        if is_last or step % args.save_every == 0:
            fabric.save("saved.ckpt", state)
        fabric.print(f"step {step} loss {loss.item():.9f}", flush=True)
        if is_last:
            break
    else:
        state.update(epoch=state["epoch"] + 1, done=0)
if fabric.global_rank == 0 and not is_last:
    Path("outputs").mkdir(exist_ok=True)
    torch.save(average.module.state_dict(), "outputs/model.pt")
