"""A LightningModule; the Trainer starts the processes of its node unless they are already running."""

import argparse
import hashlib
import time

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.network(inputs), targets)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_nodes", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1, help="processes on each node")
    parser.add_argument("--max_epochs", type=int, default=4)
    args = parser.parse_args()

    lightning.seed_everything(0)
    x = torch.randn(2048, 8)
    loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=32, shuffle=True)
    model = Regression()
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.device_count() >= args.devices else "cpu",
        strategy="ddp",
        num_nodes=args.num_nodes,
        devices=args.devices,
        max_epochs=args.max_epochs,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(model, loader)

    weights = torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()])
    fingerprint = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
    losses, rank, world_size = model.losses, trainer.global_rank, trainer.world_size
    print(f"rank {rank} of {world_size}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
    time.sleep(0.5)  # a process that ends while a thread of Gloo still holds the last gradients can hang or abort


if __name__ == "__main__":
    main()
