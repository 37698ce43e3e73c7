"""Making attempts ready in worker threads, again and again while the server is away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from muster.agent.attempt import Attempt
from muster.agent.link import Backoff, Link
from muster.agent.mover import Mover
from muster.agent.prepare import steps
from muster.agent.prepare.environment import Builder, Ready
from muster.agent.prepare.inputs import Inputs
from muster.agent.prepare.steps import Prepared, Refusal
from muster.agent.ship import checkpoints
from muster.errors import MusterError
from muster.paths import AttemptPaths, NodePaths
from muster.protocol import Order

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Preparer:
    """Prepares attempts on one node; what it makes ready, the attempt holds on to."""

    node: NodePaths
    link: Link
    mark: str
    environ: Mapping[str, str]
    begins: Callable[[Attempt], None]
    """Called when something begins that takes long: from then on its log grows."""
    doing: Callable[[tuple[str, int], str], None]
    """What a preparation that takes long is at; empty when it is over."""
    note: Callable[[Order, str, str], None]
    """Tells those who follow the run: level and text."""

    def prepare(self, attempt: Attempt) -> Prepared | None:
        """Everything that may take long; None when nobody wants it any more. Raises Refusal."""
        backoff = Backoff()
        while not attempt.unwanted.is_set():
            try:
                return steps.prepare(
                    attempt.order,
                    self.node,
                    self.link.archive,
                    partial(checkpoints.fetch, link=self.link),
                    partial(self._make_ready, attempt),
                    partial(self._place_inputs, attempt),
                )
            except Refusal:
                raise
            except MusterError as error:
                log.info("%s: code or checkpoint did not arrive, trying again: %s", attempt.key, error)
                attempt.unwanted.wait(backoff.next_s())
            except Exception as error:
                log.exception("%s could not be prepared", attempt.key)
                raise Refusal("platform", f"it could not be prepared: {error!r}") from error
        return None

    def _make_ready(self, attempt: Attempt, order: Order, paths: AttemptPaths) -> Ready | None:
        """Put the attempt's environment in place."""
        if attempt.environment is None:
            begins, doing = partial(self.begins, attempt), partial(self.doing, attempt.key)
            agree, note = self.link.agree, partial(self.note, order)
            if order.container is not None:
                # Few jobs have one, and every start of an agent would pay for it.
                from muster.agent.prepare.images.bring import Images

                images = Images(
                    self.node, self.mark, self.link.archive, begins, doing, attempt.unwanted, agree, note, self.environ
                )
                attempt.environment = images.ready(order, paths)
            else:
                builder = Builder(self.mark, begins, doing, attempt.unwanted, agree, note)
                attempt.environment = builder.ready(order, paths)
        return attempt.environment

    def _place_inputs(self, attempt: Attempt, order: Order, paths: AttemptPaths) -> dict[str, str]:
        """Put the attempt's inputs in place."""
        mover = Mover(self.mark, attempt.unwanted)
        doing = partial(self.doing, attempt.key)
        attempt.inputs = Inputs(order, paths, self.link, mover, doing, partial(self.note, order))
        return attempt.inputs.place()
