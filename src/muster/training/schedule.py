"""The learning rate of large-batch training: scaled with the batch, warmed up, then lowered."""

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
    """The rate at a moment of the training, in epochs (fractions count).

    The peak is `base * scale`, where `scale` says how many times larger the batch is than the one that `base` is
    for. The warm-up rises in a straight line from `base` to the peak. `step` divides by ten at each milestone,
    `cosine` falls to nothing at the end, `none` stays.
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
