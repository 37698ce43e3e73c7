"""LARS: a learning rate for each layer, so that batches of many thousands still train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer


class LARS(Optimizer):
    """Momentum SGD whose step for each tensor is scaled by `trust * |w| / (|g| + weight_decay * |w|)`.

    Groups with `adapt=False` (biases and normalisation, by custom) take the plain step. The norms stay on the device.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        eps: float = 1e-9,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay), ("trust", trust)):
            if value < 0:
                raise ValueError(f"{name} is {value}; it must not be negative")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "eps": eps,
            "adapt": True,
        }
        super().__init__(params, defaults)

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
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._step_group(group, weights)
        return loss

    def _step_group(self, options: Mapping[str, float], weights: list[Tensor]) -> None:
        """One pass over all tensors of the group per operation, which is what a GPU likes."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        steps = list(torch._foreach_add(gradients, weights, alpha=options["weight_decay"]))
        if options["adapt"]:
            torch._foreach_mul_(steps, self._ratios(options, weights, gradients))
        torch._foreach_mul_(steps, options["lr"])
        buffers = []
        for weight in weights:
            state = self.state[weight]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(weight)
            buffers.append(state["momentum_buffer"])
        torch._foreach_mul_(buffers, options["momentum"])
        torch._foreach_add_(buffers, steps)
        torch._foreach_sub_(weights, buffers)

    @staticmethod
    def _ratios(options: Mapping[str, float], weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """The local rate of each tensor; 1 where the weights or the gradient are nothing."""
        of_weights, of_gradients = torch._foreach_norm(weights), torch._foreach_norm(gradients)
        found = []
        for weight, gradient in zip(of_weights, of_gradients, strict=True):
            ratio = options["trust"] * weight / (gradient + options["weight_decay"] * weight + options["eps"])
            found.append(torch.where((weight > 0) & (gradient > 0), ratio, torch.ones_like(ratio)))
        return found
