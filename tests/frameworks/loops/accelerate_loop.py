# The loop of docs/training.md with Hugging Face Accelerate.
import argparse
import signal
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=16, help="of a rank, in one step")
parser.add_argument("--accumulate", type=int, default=2, help="parts of a step that are computed one after the other")
parser.add_argument("--save-every", type=int, default=10)
args = parser.parse_args()


class Progress:
    epoch = done = 0

    def state_dict(self):
        return {"epoch": self.epoch, "done": self.done}

    def load_state_dict(self, state):
        self.epoch, self.done = state["epoch"], state["done"]


stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
accelerator = Accelerator(step_scheduler_with_optimizer=False)
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
plain = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
average = AveragedModel(plain, multi_avg_fn=get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
generator = torch.Generator().manual_seed(0)
loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, generator=generator)
model, optimizer, scheduler, loader = accelerator.prepare(plain, optimizer, scheduler, loader)
progress = Progress()
accelerator.register_for_checkpointing(average, progress)

torch.manual_seed(accelerator.process_index)  # dropout of its own on every rank
if Path("saved").exists():
    accelerator.load_state("saved")
step = progress.epoch * len(loader) + progress.done
is_last = False

while progress.epoch < args.epochs and not is_last:
    loader.set_epoch(progress.epoch)
    rest = accelerator.skip_first_batches(loader, progress.done) if progress.done else loader
    for inputs, targets in rest:
        parts = zip(inputs.tensor_split(args.accumulate), targets.tensor_split(args.accumulate), strict=True)
        optimizer.zero_grad()
        for part, (x, y) in enumerate(parts, 1):
            # The ranks exchange gradients once a step, with its last part.
            model.require_backward_grad_sync = part == args.accumulate
            loss = nn.functional.mse_loss(model(x), y) / args.accumulate
            accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        average.update_parameters(plain)
        step += 1
        progress.done += 1
        # Each rank hears of a signal at another moment, so they agree on the step after which they stop.
        flag = torch.tensor(float(bool(stopping)), device=accelerator.device)
        is_last = bool(accelerator.reduce(flag, reduction="sum"))
        if is_last or step % args.save_every == 0:
            accelerator.save_state("saved")
        accelerator.print(f"step {step} loss {loss.item():.9f}", flush=True)
        if is_last:
            break
    else:
        progress.epoch, progress.done = progress.epoch + 1, 0
if accelerator.is_main_process and not is_last:
    Path("outputs").mkdir(exist_ok=True)
    torch.save(average.module.state_dict(), "outputs/model.pt")
