"""Says from the noise scale whether a larger batch pays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """What doubling the batch would bring, and in words whether to do it."""

    batch_size: int
    critical_batch: float
    """Where half of what larger batches can save in steps has been saved, at twice the samples."""
    extra_samples: float
    """Samples that this batch needs to the same loss, as a multiple of what a small batch needs."""
    doubling_saves: float
    """Part of the steps that a batch of twice the size saves: at most one half."""
    pays: bool
    text: str


def advise(batch_size: int, noise_scale: float) -> Advice:
    """With steps proportional to `1 + noise_scale / batch_size`, which is what the noise scale means."""
    if batch_size < 1 or not noise_scale > 0:
        raise ValueError(f"a batch of {batch_size} and a noise scale of {noise_scale}: both must be positive")
    saves = 1 - _steps(2 * batch_size, noise_scale) / _steps(batch_size, noise_scale)
    extra = 1 + batch_size / noise_scale
    pays, critical = batch_size < noise_scale, max(1, round(noise_scale))
    verdict = (
        f"a larger batch still pays, up to about {critical}"
        if pays
        else f"a larger batch stops paying above about {critical}: use the devices for another run, or fewer"
    )
    text = (
        f"batch {batch_size}, critical batch about {critical}: {verdict}. Twice the batch would save "
        f"{saves:.0%} of the steps; this one needs {extra:.1f} times the samples of a small one."
    )
    return Advice(batch_size, noise_scale, extra, saves, pays, text)


def _steps(batch_size: int, noise_scale: float) -> float:
    return 1 + noise_scale / batch_size
