import argparse
import os

import mlflow
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 5)
        self.fc = nn.Linear(4 * 28 * 28, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def train(args):
    world_size = int(os.environ["WORLD_SIZE"])
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group(backend=backend)
    print(f"world_size: {world_size}, rank: {rank}, data: {os.listdir(args.data_dir)}")
    torch.manual_seed(0)
    model = DistributedDataParallel(Net().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=args.momentum)
    for epoch in range(args.epochs):
        for step in range(4):
            inputs, labels = torch.rand(8, 3, 32, 32), torch.randint(0, 10, (8,))
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            mlflow.log_metric("train_loss", loss.item(), step=epoch)
    if rank == 0:
        os.makedirs("outputs", exist_ok=True)
        torch.save(model.module.state_dict(), "outputs/cifar_net.pt")


parser = argparse.ArgumentParser()
parser.add_argument("--data-dir", type=str)
parser.add_argument("--epochs", default=10, type=int)
parser.add_argument("--batch-size", default=16, type=int)
parser.add_argument("--learning-rate", default=0.001, type=float)
parser.add_argument("--momentum", default=0.9, type=float)
train(parser.parse_args())
