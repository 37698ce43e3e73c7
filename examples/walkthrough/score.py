"""The script of `muster score`: called once to load the model, then for each mini-batch of files."""

import os
from pathlib import Path

import torch
from torch import nn


def init():
    global model
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0))
    model.load_state_dict(torch.load(os.environ["MUSTER_MODEL_PATH"], weights_only=True))


def run(mini_batch):
    pictures = torch.stack([torch.load(path, weights_only=True) for path in mini_batch])
    with torch.no_grad():
        said = ["bright" if chance > 0 else "dark" for chance in model(pictures)]
    return [f"{Path(path).name},{answer}" for path, answer in zip(mini_batch, said, strict=True)]
