"""One attempt on this node: where it stands, and what an order means for it (decided purely)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum

from muster.agent.prepare.inputs import Inputs
from muster.agent.prepare.steps import Prepared
from muster.agent.run.journal import Story
from muster.environments.caller import Ready
from muster.paths import AttemptPaths
from muster.protocol import Order


class Phase(Enum):
    """Where an attempt stands on its node."""

    ORDERED = "ordered"
    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    """From the request for a keeper to the end of its last process."""
    ENDED = "ended"
    """No process is left; files and bytes are being delivered."""
    DELIVERED = "delivered"


class Step(Enum):
    """What to do next."""

    PREPARE = "prepare"
    LAUNCH = "launch"
    STOP = "stop"
    END = "end"
    """Nothing runs and nothing will: say so."""
    REMOVE = "remove"


def next_step(order: Order, phase: Phase) -> Step | None:
    """What the order asks for, given where the attempt stands; None when it is as wanted."""
    if order.action == "forget":
        if phase is Phase.PREPARING:
            return None
        return Step.STOP if phase is Phase.RUNNING else Step.REMOVE
    if order.action == "stop":
        if phase is Phase.RUNNING:
            return Step.STOP
        # Its worker, while it prepares, sees that nobody wants it any more.
        return Step.END if phase in (Phase.ORDERED, Phase.PREPARED) else None
    if phase is Phase.ORDERED:
        return Step.PREPARE
    if phase is Phase.PREPARED and order.plan is not None:
        return Step.LAUNCH
    return None


@dataclass
class Attempt:
    """What the agent's loop knows of an attempt."""

    order: Order
    paths: AttemptPaths
    phase: Phase = Phase.ORDERED
    prepared: Prepared | None = None
    story: Story = field(default_factory=Story)
    deadline: float | None = None
    """When the time limit passes, by the monotonic clock."""
    stopped_with: tuple[float, str] | None = None
    """Grace and reason of the last stop that the keeper was told."""
    inputs: Inputs | None = None
    """Its inputs, and the hold on what of them lies in the cache."""
    environment: Ready | None = None
    """Its environment, once it is in place."""
    tracked: bool = False
    """Its streams are being delivered."""
    unwanted: threading.Event = field(default_factory=threading.Event)
    """Set when its workers should give up."""

    @property
    def key(self) -> tuple[str, int]:
        return self.order.key

    @property
    def reason(self) -> str:
        """Why it was stopped, if it was."""
        return self.stopped_with[1] if self.stopped_with else self.order.stop_reason

    @property
    def succeeded(self) -> bool:
        """Whether every rank of this node did what it should."""
        exits = self.story.exited.values()
        good = [entry.get("exit_code") == 0 or entry.get("expected") for entry in exits]
        return bool(good) and all(good) and self.reason in ("", "done")

    def release(self) -> None:
        """Let go of ports, environment and data; a keeper has its own hold on them."""
        if self.inputs is not None:
            self.inputs.release()
        if self.prepared is not None:
            for held in self.prepared.ports:
                held.release()
            self.prepared = None
        if self.environment is not None:
            self.environment.lock.release()
            self.environment = None
