"""Making attempts ready in worker threads, again and again while the server is away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from muster.agent.attempt import Attempt
from muster.agent.link import Backoff, Link
from muster.agent.mover import Mover
from muster.agent.prepare import code, steps
from muster.agent.prepare.inputs import Inputs
from muster.agent.prepare.steps import Prepared, Refusal
from muster.agent.run.variables import NODE_MARK
from muster.agent.ship import checkpoints
from muster.environments.caller import Caller, Ready
from muster.environments.venvs import ready as venvs
from muster.errors import MusterError
from muster.paths import AttemptPaths, NodePaths
from muster.protocol import Order
from muster.wire.codec import from_json, to_json
from muster.wire.environments import AgreedVersions, BuiltEnvironment
from muster.wire.node.containers import Container
from muster.wire.node.recipes import Recipe

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
        """Put the attempt's environment in place; None where it has none of its own."""
        if attempt.environment is None and order.container is not None:
            # Few jobs have one, and every start of an agent would pay for it.
            from muster.environments.images import ready as images

            self.node.containers_used.touch()
            container = from_json(Container, order.container)
            attempt.environment = images.make_ready(self._caller(attempt, order, paths), container)
        elif attempt.environment is None and order.environment is not None:
            recipe = from_json(Recipe, order.environment)
            attempt.environment = venvs.make_ready(self._caller(attempt, order, paths), recipe)
        return attempt.environment

    def _caller(self, attempt: Attempt, order: Order, paths: AttemptPaths) -> Caller:
        def agree(built: BuiltEnvironment | None) -> AgreedVersions:
            return from_json(AgreedVersions, self.link.agree(order, to_json(built)))

        def unpack(digest: str, folder: Path) -> None:
            code.copy_snapshot(self.node.code_cache, digest, self.link.archive, folder)

        return Caller(
            order.run,
            order.attempt,
            order.num_nodes,
            order.python,
            mark=self.mark,
            environ={**self.environ, NODE_MARK: self.mark},
            folder=paths.root,
            log=paths.streams / "user_logs" / f"environment_node_{order.node_rank}.txt",
            unwanted=attempt.unwanted,
            begins=partial(self.begins, attempt),
            doing=partial(self.doing, attempt.key),
            note=partial(self.note, order),
            agree=agree,
            unpack=unpack,
        )

    def _place_inputs(self, attempt: Attempt, order: Order, paths: AttemptPaths) -> dict[str, str]:
        """Put the attempt's inputs in place."""
        mover = Mover(self.mark, attempt.unwanted)
        doing = partial(self.doing, attempt.key)
        attempt.inputs = Inputs(order, paths, self.link, mover, doing, partial(self.note, order))
        return attempt.inputs.place()
