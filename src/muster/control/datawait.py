"""Whether a job waits for its data more than it computes: decided from what its ranks log of themselves."""

from __future__ import annotations

DATA_METRIC = "muster/data_s"
"""Seconds that a rank has waited for data so far."""
COMPUTE_METRIC = "muster/compute_s"
"""Seconds that it has computed so far."""
_ENOUGH_S = 30.0


def advice(data_s: float, compute_s: float) -> str | None:
    """What to tell somebody whose job waits more than it computes; None where it does not, or where it is too early."""
    if data_s + compute_s < _ENOUGH_S or data_s <= compute_s:
        return None
    share = data_s / (data_s + compute_s)
    return (
        f"waits for data {share:.0%} of its time ({data_s:.0f} s, and computes for {compute_s:.0f} s): more loader "
        "processes, packed shards, or data staged on the node (mode download or ro_mount, not a mount) would help"
    )
