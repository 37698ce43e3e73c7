"""Whether a job waits for its data more than it computes: decided from the metrics that its ranks log."""

from __future__ import annotations

from collections.abc import Mapping

DATA_METRIC = "muster/data_s"
"""Seconds that a rank has waited for data so far, as its script logs them."""
COMPUTE_METRIC = "muster/compute_s"
"""Seconds that it has computed so far."""
MEASURES = ((DATA_METRIC, COMPUTE_METRIC), ("muster/loader_wait_s", "muster/loader_rest_s"))
"""Pairs of seconds waited and not waited: the script's own, and what Muster measures in loaders (`parts/datawait`)."""
ADVISED_SHARE = 0.5
"""A job that waits for a larger share of its time gets the advice."""
WAITS = "waits for data"
"""A part of the advice by which it is recognized."""
_ENOUGH_S = 30.0


def advice(data_s: float, compute_s: float) -> str | None:
    """Advice for a job that waits more than it computes; None where it does not, or where it is too early to say."""
    if data_s + compute_s < _ENOUGH_S or data_s <= ADVISED_SHARE * (data_s + compute_s):
        return None
    share = data_s / (data_s + compute_s)
    return (
        f"{WAITS} {share:.0%} of its time ({data_s:.0f} s, and computes for {compute_s:.0f} s): more loader "
        "processes, packed shards, or data staged on the node (mode download or ro_mount, not a mount) would help"
    )


def waited(metrics: Mapping[str, object]) -> tuple[float, float] | None:
    """The share of its time that a run waited for data, and over how many seconds this was measured."""
    for data, rest in MEASURES:
        data_s, rest_s = metrics.get(data), metrics.get(rest)
        if isinstance(data_s, int | float) and isinstance(rest_s, int | float) and data_s + rest_s > 0:
            return data_s / (data_s + rest_s), data_s + rest_s
    return None
