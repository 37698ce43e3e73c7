"""Makes dark and bright pictures to train and score with, each a file of numbers; their names give the class."""

import sys
from pathlib import Path

import torch

folder = Path(sys.argv[1])
source = torch.Generator().manual_seed(0)
for part, count in (("train", 200), ("unseen", 40)):
    (folder / part).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        label = number % 2
        picture = torch.randn(8, 8, generator=source) + label - 0.5
        torch.save(picture, folder / part / f"{'bright' if label else 'dark'}_{number:03d}.pt")
print(f"{count} pictures to score, 200 to train with")
