"""Compares what two Horovods made of the same calls. What the real one gave on two ranks is kept beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SCRIPTS = KEPT = Path(__file__).parent
BAND = 1e-5
"""By so much, relative to values above one, results may differ: sums in another order."""
COARSE_BAND = 2e-3
"""The same in 16 bits."""
COARSE = ("compressed", "fp16", "half")
"""Words in the names of calls in 16 bits."""


def differences(real: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """The calls whose results are not the same, with both."""
    missing = [f"{name}: in one of the two alone" for name in real.keys() ^ found.keys()]
    return missing + [
        f"{name}: {real[name]} with Horovod, {found[name]} without"
        for name in real.keys() & found.keys()
        if not alike(real[name], found[name], COARSE_BAND if any(word in name for word in COARSE) else BAND)
    ]


def alike(one: Any, other: Any, band: float) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b, band) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key], band) for key in one)
    if isinstance(one, float) and isinstance(other, int | float):
        return abs(one - other) <= band * max(1.0, abs(one))
    return bool(one == other)
