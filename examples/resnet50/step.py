"""The work for every batch; everything that decides the speed of the training is in this file."""

import argparse
import contextlib
from typing import Any

import torch
from pixels import normalize
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from muster.training import LARS, NoiseScale, World

TUNED = {"max_autotune_pointwise": True, "combo_kernels": True}
"""Half a minute more of compiling, for a few percent of speed: try several configurations of each kernel between the
convolutions, and combine small ones."""


def tuned(parts: int) -> dict[str, Any]:
    """Run a step as CUDA graphs, which leaves Python free to prepare the next batch; not if several parts of a batch
    add up their gradients, since each run of a graph overwrites those of the one before."""
    return {**TUNED, "triton.cudagraphs": parts == 1}


class Step:
    """Forward, backward, the exchange of gradients, and the optimizer."""

    def __init__(self, args: argparse.Namespace, world: World, model: nn.Module) -> None:
        self._args, self._device, self._parts = args, world.device, args.accumulate
        self.network: nn.Module = model
        self.optimizer = make_optimizer(args, model, world.device)
        self.noise: NoiseScale | None = None
        if world.size > 1 and args.backend == "horovod":
            self.optimizer = _with_horovod(model, self.optimizer, args.accumulate)
        elif world.size > 1:
            self.network = DistributedDataParallel(model, process_group=world.group, gradient_as_bucket_view=True)
            self._settle()
        if args.noise_scale and isinstance(self.network, DistributedDataParallel):
            self.noise = NoiseScale(args.batch_size, args.global_batch)
            self.noise.attach(self.network)
        self._loss = self._eager_loss
        if args.compile == "tuned":
            self._loss = torch.compile(self._eager_loss, options=tuned(args.accumulate))
        elif args.compile != "off":
            self._loss = torch.compile(self._eager_loss, mode=args.compile)
        if world.device.type == "cuda":
            torch.backends.cudnn.benchmark = True
            torch.set_float32_matmul_precision("high")

    def _settle(self) -> None:
        """Let DDP see one backward: after it gradients are in their final order, in which a resume must find them.

        Otherwise three or more ranks would add them in another order in the first step after a resume.
        """
        statistics = [buffer.clone() for buffer in self.network.buffers()]
        some = torch.zeros(2, 3, self._args.image_size, self._args.image_size, device=self._device)
        self._eager_loss(some, torch.zeros(2, dtype=torch.long, device=self._device)).backward()
        self.network.zero_grad()
        for buffer, before in zip(self.network.buffers(), statistics, strict=True):
            buffer.copy_(before)

    def __call__(self, images: Tensor, labels: Tensor, rate: float) -> Tensor:
        """Train on a batch; returns the loss of this rank, without waiting for it."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self._args.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        losses = []
        for part, (some, their) in enumerate(zip(images.chunk(self._parts), labels.chunk(self._parts), strict=True)):
            with self._alone(part < self._parts - 1):
                # Outside the compiled function: otherwise PyTorch's cache would miss at the next start.
                with torch.autocast(self._device.type, torch.bfloat16, enabled=self._args.amp == "bf16"):
                    loss = self._loss(some, their) / self._parts
                loss.backward()
            losses.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.noise is not None:
            self.noise.step()
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _eager_loss(self, images: Tensor, labels: Tensor) -> Tensor:
        scores = self.network(normalize(images))
        return cross_entropy(scores.float(), labels, label_smoothing=self._args.label_smoothing)

    def _alone(self, alone: bool) -> contextlib.AbstractContextManager[Any]:
        """Skip the exchange except for the last part of a batch."""
        if alone and isinstance(self.network, DistributedDataParallel):
            return self.network.no_sync()
        return contextlib.nullcontext()


def make_optimizer(args: argparse.Namespace, model: nn.Module, device: torch.device) -> Optimizer:
    """Momentum SGD or LARS; biases and normalisation do not decay, and LARS does not adapt their rate."""
    weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": others, "weight_decay": 0.0}]
    if args.optimizer == "lars":
        groups[1]["adapt"] = False
        return LARS(groups, lr=0.0, momentum=args.momentum, weight_decay=args.weight_decay)
    return torch.optim.SGD(
        groups,
        lr=0.0,
        momentum=args.momentum,
        nesterov=args.momentum > 0,
        weight_decay=args.weight_decay,
        fused=device.type == "cuda",
    )


def _with_horovod(model: nn.Module, optimizer: Optimizer, parts: int) -> Any:
    """Have Horovod reduce the gradients; everything else is exchanged as without it."""
    import horovod.torch as hvd

    hvd.init()
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=parts)
