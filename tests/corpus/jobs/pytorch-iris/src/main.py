import argparse
import csv

import mlflow
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--iris-csv", type=str)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
mlflow.pytorch_started = True
with open(args.iris_csv) as stream:
    rows = list(csv.reader(stream))[1:]
names = sorted({row[-1] for row in rows})
X = torch.tensor([[float(v) for v in row[:4]] for row in rows])
y = torch.tensor([names.index(row[-1]) for row in rows])
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
mlflow.log_params({"epochs": args.epochs, "lr": args.lr})
for epoch in range(args.epochs):
    loss = nn.functional.cross_entropy(model(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mlflow.log_metric("loss", loss.item(), step=epoch)
print("loss", loss.item())
