"""Large-batch training: a learning rate that is scaled, warmed up, then decayed; a batch that grows."""

from __future__ import annotations

import math
from collections.abc import Sequence

MILESTONES = (30, 60, 80)
DECAYS = ("step", "cosine", "none")


def learning_rate(
    epoch: float,
    *,
    base: float,
    scale: float = 1.0,
    warmup_epochs: float = 5.0,
    decay: str = "step",
    epochs: float = 90.0,
    milestones: Sequence[float] = MILESTONES,
) -> float:
    """The learning rate at a moment of the training, in epochs (fractions count).

    The peak is `base * scale`, where `scale` says how many times larger the batch is than the one that `base` is
    for. The warm-up rises in a straight line from `base` to the peak. `step` divides by ten at each milestone,
    `cosine` falls to zero at the end, `none` stays.
    """
    if decay not in DECAYS:
        raise ValueError(f"the decay is {decay!r}; it is one of {', '.join(DECAYS)}")
    if not epoch >= 0 or warmup_epochs < 0:
        raise ValueError(f"epoch={epoch} and warmup_epochs={warmup_epochs} must not be negative")
    peak = base * scale
    if epoch < warmup_epochs:
        start = min(base, peak)
        return start + (peak - start) * epoch / warmup_epochs
    if decay == "step":
        return float(peak * 0.1 ** sum(epoch >= milestone for milestone in milestones))
    if decay == "cosine":
        done = min(1.0, (epoch - warmup_epochs) / max(epochs - warmup_epochs, 1e-9))
        return peak * 0.5 * (1.0 + math.cos(math.pi * done))
    return peak


def batch_size(epoch: float, *, first: int, last: int, ramp_epochs: float) -> int:
    """The batch at a moment of the training: from `first`, doubled again and again, to `last` at `ramp_epochs`.

    Later in a training larger batches are useful, since gradients get noisier. The doublings are spread evenly;
    a `last` that is no power of two times `first` is reached with a smaller last step.
    """
    if not 0 < first <= last:
        raise ValueError(f"first={first} and last={last}: a batch grows from one that is positive to a larger one")
    if not epoch >= 0 or not ramp_epochs >= 0:
        raise ValueError(f"epoch={epoch} and ramp_epochs={ramp_epochs} must not be negative")
    if epoch >= ramp_epochs:
        return last
    doublings = math.ceil(math.log2(last / first))
    return min(last, first * 2 ** int(epoch / ramp_epochs * doublings))
