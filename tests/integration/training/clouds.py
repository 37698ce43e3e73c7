"""A small classification problem that is made, not stored: overlapping clouds of points, and SGD on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from muster.training import NoiseScale

CLASSES, DIMENSIONS, PARTS = 10, 32, 4


class Clouds:
    """Points around ten centres, wide enough to overlap; as many as one asks for."""

    def __init__(self, seed: int, spread: float = 3.5) -> None:
        self._source = torch.Generator().manual_seed(seed)
        self._centres = torch.randn(CLASSES, DIMENSIONS, generator=torch.Generator().manual_seed(0))
        self._spread = spread

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(CLASSES, (size,), generator=self._source)
        noise = torch.randn(size, DIMENSIONS, generator=self._source)
        return self._centres[labels] + self._spread * noise, labels


def steps_to(target: float, batch_size: int, rate: float, limit: int, scale: NoiseScale | None = None) -> int:
    """Steps of plain SGD until the loss on other points is at the target; the scale, if given, looks on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(DIMENSIONS, 32), nn.Tanh(), nn.Linear(32, CLASSES))
    data, (points, labels) = Clouds(1), Clouds(99).batch(1000)
    parameters = list(model.parameters())
    for step in range(1, limit + 1):
        some, their = data.batch(batch_size)
        parts = 1 if scale is None else PARTS
        gradients = [
            torch.autograd.grad(cross_entropy(model(x), y), parameters)
            for x, y in zip(some.chunk(parts), their.chunk(parts), strict=True)
        ]
        means = [torch.stack(each).mean(0) for each in zip(*gradients, strict=True)]
        if scale is not None:
            scale.observe(torch.stack([_square(part) for part in gradients]).mean(), _square(means))
        with torch.no_grad():
            for parameter, gradient in zip(parameters, means, strict=True):
                parameter -= rate * gradient
            if step % 2 == 0 and cross_entropy(model(points), labels).item() <= target:
                return step
    return limit


def _square(gradients: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.stack([gradient.square().sum() for gradient in gradients]).sum()
