"""Whether a failed attempt is followed by another: a pure decision over verdict, policy and history."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.defaults import (
    RETRIES_NODE_LOSS,
    RETRIES_PLATFORM,
    RETRIES_PREEMPTION,
    RETRIES_USER_ERROR,
    RETRY_BACKOFF_MAX_S,
    RETRY_BACKOFF_S,
)
from muster.job import parts
from muster.wire.verdicts import Budget, Code, code_of

_WORDS: Mapping[Budget, str] = {
    "preemption": "preemptions",
    "node_loss": "lost nodes",
    "platform": "faults of the platform",
    "user_error": "errors of the job",
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
    """Verdicts that `user_error` covers; None: all but those that would only recur."""

    @classmethod
    def of(cls, *layers: parts.Retry) -> Policy:
        """The defaults, overridden by each layer in turn; null means not given."""
        policy = cls()
        for layer in layers:
            given = {name: getattr(layer, name) for name in cls.__dataclass_fields__}
            policy = replace(policy, **{name: value for name, value in given.items() if value is not None})
        return policy

    def allows(self, budget: Budget) -> int:
        """How many further attempts there are for a kind of failure."""
        count: int = getattr(self, budget)
        return count


@dataclass(frozen=True)
class Past:
    """An attempt that has ended: its verdict and the node to blame."""

    code: str
    node: str | None = None
    progressed: bool = False
    """It published a checkpoint."""
    of_script: bool = False
    """The script's own fault, whatever the code says."""

    @property
    def budget(self) -> Budget | None:
        """Which budget pays for another attempt; what the script did itself never costs the platform's."""
        budget = code_of(self.code).budget
        return "user_error" if self.of_script and budget in ("platform", "node_loss") else budget


@dataclass(frozen=True)
class Retry:
    """One more attempt."""

    delay_s: float
    exclude: tuple[str, ...]
    """Nodes that it should avoid."""
    why: str


@dataclass(frozen=True)
class Stop:
    """No further attempt."""

    why: str


def decide(past: Sequence[Past], policy: Policy, seed: str) -> Retry | Stop:
    """What follows the last of these attempts; `seed` makes the jitter of a run its own, and repeatable."""
    last, code = past[-1], code_of(past[-1].code)
    if code.never_retried:
        return Stop("")
    if last.budget is None:
        # Not a failure: the run goes on in the next slice of its time, as long as it makes progress.
        if last.progressed:
            return Retry(0.0, (), f"attempt {len(past) + 1}: the next slice of its time")
        return Stop("no further attempt: it published no checkpoint in this slice of its time to go on from")
    if last.budget == "user_error" and not _covered(code, policy):
        return Stop(f"no further attempt: {last.code} is not retried" + _on_codes(policy))
    kind, budget = _WORDS[last.budget], policy.allows(last.budget)
    used = sum(1 for item in past if item.budget == last.budget) - 1
    if used >= budget:
        if budget == 0:
            return Stop(f"no further attempt: retry.{last.budget} allows none for {kind}")
        return Stop(f"no further attempt: {budget} of {budget} for {kind} are used up (retry.{last.budget})")
    exclude = tuple(sorted({item.node for item in past if item.node and code_of(item.code).avoid_node}))
    why = f"attempt {len(past) + 1}: {used + 1} of {budget} for {kind}"
    return Retry(delay_s(used, policy.backoff_s, f"{seed}.{len(past)}"), exclude, why)


def delay_s(used: int, backoff_s: float, seed: str) -> float:
    """Exponential backoff per kind of failure, capped, with jitter so that runs do not all return at once."""
    most = min(backoff_s * 2.0 ** min(used, 30), max(RETRY_BACKOFF_MAX_S, backoff_s))
    return float(most * random.Random(seed).uniform(0.5, 1.0))


def _covered(code: Code, policy: Policy) -> bool:
    return code.name in policy.on_codes if policy.on_codes is not None else not code.final


def _on_codes(policy: Policy) -> str:
    if policy.on_codes is None:
        return " unless retry.on_codes names it"
    return f" (retry.on_codes: {', '.join(policy.on_codes) or 'none'})"
