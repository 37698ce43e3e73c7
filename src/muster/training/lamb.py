"""LAMB: Adam with a learning rate for each layer, for Transformers in batches of many thousands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from muster.training.layerwise import Group, LayerwiseOptimizer, check_options


class LambGroup(Group):
    """The options that a group of parameters can set for itself."""

    lr: float
    betas: tuple[float, float]
    eps: float


class LAMB(LayerwiseOptimizer):
    """Adam whose step for each tensor is scaled to the norm of the tensor (You et al., 2020).

    Biases and normalisation (tensors of at most one dimension) take Adam's plain step and do not decay, as for LARS;
    `adapt=True` or `False` in a group decides for the whole group. The norms stay on the device.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.00176,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        check_options(lr=lr, eps=eps, weight_decay=weight_decay)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas are {betas}; there are two, both at least 0 and less than 1")
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": None}
        super().__init__(params, options)

    def _step_tensors(self, options: LambGroup, weights: list[Tensor], adapts: bool, decay: float) -> None:
        """One pass over all tensors per operation, which is fast on a GPU."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        states = [self._state_of(weight) for weight in weights]
        means, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
        first, second = options["betas"]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        counts = []
        for state in states:
            state["step"] += 1
            counts.append(state["step"].item())
        steps = list(torch._foreach_div(means, [1 - first**count for count in counts]))
        roots = list(torch._foreach_div(squares, [1 - second**count for count in counts]))
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, options["eps"])
        torch._foreach_div_(steps, roots)
        torch._foreach_add_(steps, weights, alpha=decay)
        if adapts:
            torch._foreach_mul_(steps, _ratios(weights, steps))
        torch._foreach_add_(weights, steps, alpha=-options["lr"])

    def _state_of(self, weight: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        return state


def _ratios(weights: list[Tensor], steps: list[Tensor]) -> list[Tensor]:
    """The factor that makes each step as long as its tensor; 1 if either norm is zero."""
    pairs = zip(torch._foreach_norm(weights), torch._foreach_norm(steps), strict=True)
    return [torch.where((weight > 0) & (step > 0), weight / step, torch.ones_like(weight)) for weight, step in pairs]
