"""What LARS and LAMB have in common: a learning rate for each layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypedDict, overload

import torch
from torch import Tensor
from torch.optim import Optimizer


class Group(TypedDict):
    """The options that decide how the tensors of a group are treated."""

    params: list[Tensor]
    weight_decay: float
    adapt: bool | None
    """Whether the rate adapts to each tensor; None: only for tensors of more than one dimension."""


class LayerwiseOptimizer(Optimizer):
    """Steps through the tensors of each group: those whose rate adapts, then the others."""

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weights, adapts, decay in divided(group):
                self._step_tensors(group, weights, adapts, decay)
        return loss

    @abstractmethod
    def _step_tensors(self, options: Any, weights: list[Tensor], adapts: bool, decay: float) -> None:
        """Update these weights from their gradients, with the options of their group."""


def check_options(**options: float) -> None:
    """Raise ValueError for a negative option."""
    for name, value in options.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}; it must not be negative")


def divided(group: Group) -> Iterator[tuple[list[Tensor], bool, float]]:
    """The tensors of a group that have a gradient, by whether their rate adapts, and the weight decay of each part."""
    weights = [weight for weight in group["params"] if weight.grad is not None]
    adapt, decay = group["adapt"], group["weight_decay"]
    if adapt is not None:
        parts = [(weights, bool(adapt), decay)]
    else:
        parts = [
            ([weight for weight in weights if weight.ndim > 1], True, decay),
            ([weight for weight in weights if weight.ndim <= 1], False, 0.0),
        ]
    yield from (part for part in parts if part[0])
