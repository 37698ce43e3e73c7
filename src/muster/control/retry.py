"""Whether an attempt that failed is followed by another: a pure decision over verdict, policy and history."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.defaults import (
    RETRIES_NODE_LOSS,
    RETRIES_PLATFORM,
    RETRIES_PREEMPTION,
    RETRIES_USER_ERROR,
    RETRY_BACKOFF_MOST_S,
    RETRY_BACKOFF_S,
)

PREEMPTION = "preemption"
NODE_LOSS = "node_loss"
PLATFORM = "platform"
USER_ERROR = "user_error"

SLICE = "time_slice"
"""No failure: the run goes on in the next slice of its time, as long as it gets on."""

_CLASSES = {
    "time_slice": SLICE,
    "preempted": PREEMPTION,
    "node_lost": NODE_LOSS,
    "gpu_fault": NODE_LOSS,
    "platform": PLATFORM,
    "port_trouble": PLATFORM,
}
# Another node may do better; on the same one it would happen again.
_NODE_LIKE = frozenset({"node_lost", "preempted", "gpu_fault"})
# Asked for or deserved; retried only where the policy names the code.
_FINAL = frozenset({"timeout", "bad_input", "launcher_missing"})
_NEVER = frozenset({"completed", "cancelled"})
_WORDS = {
    PREEMPTION: "preemptions",
    NODE_LOSS: "lost nodes",
    PLATFORM: "faults of the platform",
    USER_ERROR: "errors of the job",
}


@dataclass(frozen=True)
class Policy:
    """How often each kind of failure is retried."""

    preemption: int = RETRIES_PREEMPTION
    node_loss: int = RETRIES_NODE_LOSS
    platform: int = RETRIES_PLATFORM
    user_error: int = RETRIES_USER_ERROR
    backoff_s: float = RETRY_BACKOFF_S
    on_codes: tuple[str, ...] | None = None
    """Verdicts that `user_error` covers; None: all but those that would only happen again."""

    @classmethod
    def of(cls, *layers: Mapping[str, Any] | None) -> Policy:
        """Defaults, with each layer laid over those before it; null means not given."""
        chosen: dict[str, Any] = {}
        for layer in layers:
            chosen |= {key: value for key, value in (layer or {}).items() if value is not None}
        codes = chosen.get("on_codes")
        known = {key: value for key, value in chosen.items() if key in cls.__dataclass_fields__}
        return cls(**{**known, "on_codes": tuple(codes) if codes is not None else None})


@dataclass(frozen=True)
class Past:
    """An attempt that has ended: its verdict and where it was to blame."""

    code: str
    node: str | None = None
    progressed: bool = False
    """It published a checkpoint."""


@dataclass(frozen=True)
class Retry:
    """One more attempt."""

    delay_s: float
    exclude: tuple[str, ...]
    """Nodes that it should keep off."""
    why: str


@dataclass(frozen=True)
class Stop:
    """No further attempt."""

    why: str


def decide(past: Sequence[Past], policy: Policy, seed: str) -> Retry | Stop:
    """What follows the last of these attempts; `seed` makes the jitter of a run its own, and repeatable."""
    last = past[-1]
    if last.code in _NEVER:
        return Stop("")
    if last.code == SLICE:
        if last.progressed:
            return Retry(0.0, (), f"attempt {len(past) + 1}: the next slice of its time")
        return Stop("no further attempt: it published no checkpoint in this slice of its time to go on from")
    kind = class_of(last.code)
    budget: int = getattr(policy, kind)
    if kind == USER_ERROR and not _covered(last.code, policy):
        return Stop(f"no further attempt: {last.code} is not retried" + _on_codes(policy))
    used = sum(1 for item in past if _counts(item.code, kind)) - 1
    if used >= budget:
        if budget == 0:
            return Stop(f"no further attempt: none are set for {_WORDS[kind]} (retry.{kind})")
        return Stop(f"no further attempt: {budget} of {budget} for {_WORDS[kind]} are used up (retry.{kind})")
    exclude = tuple(sorted({item.node for item in past if item.node and item.code in _NODE_LIKE}))
    why = f"attempt {len(past) + 1}: {used + 1} of {budget} for {_WORDS[kind]}"
    return Retry(delay_s(used, policy.backoff_s, f"{seed}.{len(past)}"), exclude, why)


def class_of(code: str) -> str:
    """Which budget a verdict draws on."""
    return _CLASSES.get(code, USER_ERROR)


def delay_s(used: int, backoff_s: float, seed: str) -> float:
    """Doubles with every retry of its kind up to a limit, and is spread so that runs do not return all at once."""
    most = min(backoff_s * 2.0 ** min(used, 30), max(RETRY_BACKOFF_MOST_S, backoff_s))
    return float(most * random.Random(seed).uniform(0.5, 1.0))


def _covered(code: str, policy: Policy) -> bool:
    return code in policy.on_codes if policy.on_codes is not None else code not in _FINAL


def _counts(code: str, kind: str) -> bool:
    return code not in _NEVER and class_of(code) == kind


def _on_codes(policy: Policy) -> str:
    if policy.on_codes is None:
        return " unless retry.on_codes names it"
    return f" (retry.on_codes: {', '.join(policy.on_codes) or 'none'})"
