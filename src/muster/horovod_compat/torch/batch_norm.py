"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ..reduction import Sum
from .calls import allreduce
from .group import GROUP


class SyncBatchNorm(_BatchNorm):
    """In training uses the mean and variance over all ranks' batches; works on CPUs too."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm needs at least 2 dimensions, and the input has {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if GROUP.size() == 1 or (not self.training and self.track_running_stats):
            return super().forward(input)
        over = [at for at in range(input.dim()) if at != 1]
        count = torch.full((1,), input.numel() / input.shape[1], dtype=torch.float32, device=input.device)
        wide = input.float()
        sums = allreduce(torch.cat([wide.sum(over), (wide * wide).sum(over), count]), op=Sum)
        total, squares = sums[: self.num_features], sums[self.num_features : -1]
        all_count = sums[-1].detach()
        mean = total / all_count
        variance = (squares / all_count - mean * mean).clamp_min(0.0)
        if self.training and self.track_running_stats:
            self._follow(mean.detach(), variance.detach() * all_count / (all_count - 1).clamp_min(1.0))
        shape = [1, -1] + [1] * (input.dim() - 2)
        normal = (wide - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(input.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)
