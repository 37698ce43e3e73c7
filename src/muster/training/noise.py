"""The gradient noise scale: how large a batch can be before more samples a step stop helping.

Estimated from squared norms of gradients at two batch sizes, as in McCandlish et al., "An Empirical Model of
Large-Batch Training" (2018): data parallel training has both at hand, before and after the all-reduce.
"""

# No `from __future__ import annotations`: DDP reads the annotations of its hook.
import math
from dataclasses import dataclass
from typing import TypedDict

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


class NoiseState(TypedDict):
    """A running estimate, for a checkpoint."""

    signal: Tensor
    noise: Tensor


class NoiseScale:
    """Keeps running means of the two parts of the estimate; nothing waits for the device until `value` is read."""

    def __init__(self, small_batch: int, big_batch: int, *, decay: float = 0.98) -> None:
        if not 0 < small_batch < big_batch:
            raise ValueError(
                f"the noise scale needs two batch sizes, the smaller first; given {small_batch} and {big_batch}. "
                "One rank has only one: accumulate gradients, or use several ranks."
            )
        self._small_batch, self._big_batch, self._decay = small_batch, big_batch, decay
        self._noise = self._signal = torch.zeros(())
        self._before: list[Tensor] = []
        self._after: list[Tensor] = []
        self._group: dist.ProcessGroup | None = None

    def attach(self, network: DistributedDataParallel) -> None:
        """Watch the gradients of a network; call `step` after each of its synchronised backward passes."""
        if not isinstance(network, DistributedDataParallel):
            raise TypeError(
                f"{type(network).__name__} does not reduce gradients: attach it to the DistributedDataParallel"
            )
        self._group = network.process_group
        network.register_comm_hook(self, _watch_and_reduce)

    def step(self) -> None:
        """Add the measurement of the last backward pass."""
        if not self._before:
            raise RuntimeError("no gradient was reduced since the last step: call this after a synchronised backward")
        small = torch.stack(self._before).sum()
        # Every rank has its own gradient: the mean over ranks is a better estimate.
        dist.all_reduce(small, group=self._group)
        self.observe(small / dist.get_world_size(self._group), torch.stack(self._after).sum())
        self._before, self._after = [], []

    def observe(self, small_norm_sq: Tensor, big_norm_sq: Tensor) -> None:
        """Add squared norms of the gradient over a small and over a big batch.

        A step whose gradients are not finite, such as one that a scaler skips, is left out: it would spoil the means.
        """
        small, big = self._small_batch, self._big_batch
        signal = (big * big_norm_sq - small * small_norm_sq) / (big - small)
        noise = (small_norm_sq - big_norm_sq) / (1 / small - 1 / big)
        is_finite = signal.isfinite() & noise.isfinite()
        self._signal = torch.where(is_finite, self._mean(self._signal, signal), self._signal.to(signal))
        self._noise = torch.where(is_finite, self._mean(self._noise, noise), self._noise.to(noise))

    def _mean(self, before: Tensor, value: Tensor) -> Tensor:
        return self._decay * before.to(value) + (1 - self._decay) * value

    @property
    def value(self) -> float | None:
        """The noise scale in samples; None while the estimate is not positive (too few steps, or no signal left)."""
        signal, noise = self._signal.item(), self._noise.item()
        return noise / signal if signal > 0 and noise > 0 else None

    def state_dict(self) -> NoiseState:
        return {"signal": self._signal, "noise": self._noise}

    def load_state_dict(self, state: NoiseState) -> None:
        self._signal, self._noise = state["signal"], state["noise"]


def _watch_and_reduce(watcher: NoiseScale, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The usual mean over the ranks; the norm is measured before and after it."""
    gradients = bucket.buffer()
    watcher._before.append(gradients.float().square().sum())
    gradients.div_(dist.get_world_size(watcher._group))
    future = dist.all_reduce(gradients, group=watcher._group, async_op=True).get_future()

    def look(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        reduced = done.value()[0]
        watcher._after.append(reduced.float().square().sum())
        return reduced

    result: torch.futures.Future[Tensor] = future.then(look)
    return result


@dataclass(frozen=True)
class Advice:
    """The effect of doubling the batch, and in words whether to do it."""

    batch_size: int
    critical_batch: float
    """The batch that saves half of the steps that larger batches can save, at twice the samples."""
    extra_samples: float
    """The samples that this batch needs to reach the same loss, as a multiple of what a small batch needs."""
    doubling_saves: float
    """The share of the steps that a batch of twice the size saves: at most one half."""
    pays: bool
    text: str


def advise(batch_size: int, noise_scale: float | None) -> Advice:
    """Advice for a batch: the noise scale means that steps are proportional to `1 + noise_scale / batch_size`."""
    if noise_scale is None:
        raise ValueError("there is no noise scale to advise on: `NoiseScale.value` is None until it has an estimate")
    if batch_size < 1 or not 0 < noise_scale < math.inf:
        raise ValueError(
            f"a batch of {batch_size} and a noise scale of {noise_scale}: both must be positive, and finite"
        )
    saves = 1 - _steps(2 * batch_size, noise_scale) / _steps(batch_size, noise_scale)
    extra = 1 + batch_size / noise_scale
    pays, about = batch_size < noise_scale, _rounded(noise_scale)
    verdict = (
        f"a larger batch still helps; one above about {about} would stop helping"
        if pays
        else f"a batch above about {about} stops helping: use the devices for another run, or fewer"
    )
    text = (
        f"batch {batch_size:,}: {verdict}. Twice the batch would save {saves:.0%} of the steps; this one needs "
        f"{extra:.1f} times the samples of a small one."
    )
    return Advice(batch_size, noise_scale, extra, saves, pays, text)


def _steps(batch_size: int, noise_scale: float) -> float:
    return 1 + noise_scale / batch_size


def _rounded(value: float) -> str:
    """Rounded to one digit, or two if the first is 1: the estimate is no more precise."""
    whole = max(1, round(value))
    kept = 2 if str(whole)[0] == "1" else 1
    return f"{round(whole, kept - len(str(whole))):,}"
