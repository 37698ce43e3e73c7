"""LARS: a learning rate for each layer, so that training works with batches of many thousands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from muster.training.layerwise import LayerwiseOptimizer, check_options


class LARS(LayerwiseOptimizer):
    """Momentum SGD whose step for each tensor is scaled by `trust * |w| / (|g| + weight_decay * |w|)`.

    Biases and normalisation (tensors of at most one dimension) take the plain step and do not decay; `adapt=True` or
    `False` in a group decides for the whole group. The norms stay on the device.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2.5,
        *,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        trust: float = 0.001,
        eps: float = 1e-9,
    ) -> None:
        check_options(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "eps": eps,
            "adapt": None,
        }
        super().__init__(params, defaults)

    def _step_tensors(self, options: Mapping[str, float], weights: list[Tensor], adapts: bool, decay: float) -> None:
        """One pass over all tensors per operation, which is fast on a GPU."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        steps = list(torch._foreach_add(gradients, weights, alpha=decay))
        if adapts:
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
        """The local rate of each tensor; 1 if the norm of its weights or gradient is zero."""
        of_weights, of_gradients = torch._foreach_norm(weights), torch._foreach_norm(gradients)
        found = []
        for weight, gradient in zip(of_weights, of_gradients, strict=True):
            ratio = options["trust"] * weight / (gradient + options["weight_decay"] * weight + options["eps"])
            found.append(torch.where((weight > 0) & (gradient > 0), ratio, torch.ones_like(ratio)))
        return found
