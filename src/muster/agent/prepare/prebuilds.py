"""Environments that are built for runs which are still queued, without taking capacity from ranks."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from muster.agent.link import Backoff, Trouble
from muster.agent.mover import Mover
from muster.agent.prepare.bundles import Bundles
from muster.agent.prepare.environments import NodeEnvironments
from muster.agent.prepare.wheels import NodeWheels
from muster.agent.refusal import refusal_of
from muster.agent.run.variables import NODE_MARK
from muster.agent.services import NodeServices
from muster.environments.caller import Caller
from muster.environments.failures import Failure
from muster.environments.venvs import ready as venvs
from muster.environments.venvs.others import NoOthers
from muster.host.children import Abandoned
from muster.wire.node.builds import BuildOrder, BuildReport
from muster.wire.verdicts import Refusal

log = logging.getLogger(__name__)

_LINGER_S = 5.0
_LOG_BYTES = 1 << 20


class Prebuild:
    """One build, from the order to the report."""

    def __init__(self, order: BuildOrder, services: NodeServices) -> None:
        self.order = order
        """The newest order for it; changed by the loop, read by the worker."""
        self.unwanted = threading.Event()
        self.missed_at: float | None = None
        """Since when no order has asked for it."""
        self.is_reported = False
        self._services = services
        self._folder = _folder(services) / order.id
        self._text = ""

    def follow(self, order: BuildOrder) -> None:
        """Take a newer order for the same environment."""
        gone = set(self.order.runs) - set(order.runs)
        self.order, self.missed_at = order, None
        for run in gone:
            self._services.doing((run, 0), "")
        self._say(self._text)

    def run(self) -> None:
        """In a worker: build it, unless it is there, and report."""
        printed = self._folder / "log.txt"
        try:
            report = self._build(printed)
        except Abandoned:
            return
        finally:
            self._say("")
            shutil.rmtree(self._folder, ignore_errors=True)
        self._report(report)

    def _build(self, printed: Path) -> BuildReport:
        order = self.order
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            printed.write_bytes(b"")
            ready = venvs.make_ready(self._caller(printed), order.recipe)
        except Failure as failure:
            refusal = Refusal(failure.code, failure.message, failure.next, failure.lines)
            return BuildReport(order.id, refusal=refusal, log=_tail(printed))
        except OSError as error:
            return BuildReport(order.id, refusal=refusal_of(error, self._folder).event)
        except Abandoned:
            raise
        except Exception as error:
            log.exception("%s could not be built", order.recipe.label)
            return BuildReport(order.id, refusal=Refusal("platform", f"it could not be built: {error!r}"))
        ready.lock.release()
        return BuildReport(order.id, environment=ready.built, log=_tail(printed))

    def _report(self, report: BuildReport) -> None:
        """Send the report, with retries; a later order for the same gets the same one."""
        backoff = Backoff()
        while not self.unwanted.is_set():
            asked = self.order.id
            try:
                self._services.link.report_build(BuildReport(asked, report.environment, report.refusal, report.log))
            except Trouble as error:
                log.info("%s: the report did not arrive, trying again: %s", asked, error)
                self.unwanted.wait(backoff.next_s())
                continue
            self.is_reported = True
            return

    def _caller(self, printed: Path) -> Caller:
        services = self._services
        return Caller(
            self.order.runs[0],
            0,
            # The nodes of a gang agree on versions once it starts.
            num_nodes=1,
            python=self.order.python,
            mark=services.mark,
            environ={**services.environ, NODE_MARK: services.mark},
            folder=self._folder,
            log=printed,
            unwanted=self.unwanted,
            begins=lambda: None,
            doing=self._say,
            note=lambda level, text: log.info("%s", text),
            agree=_never,
            unpack=_never,
            wheels=NodeWheels(services.link, self.unwanted),
            others=NodeEnvironments(self._bundles(), self.unwanted) if self.order.shared else NoOthers(),
            environments=services.paths.environments if self.order.own_cache else None,
        )

    def _bundles(self) -> Bundles:
        services, order = self._services, self.order
        carrier = Mover(services.mark, self.unwanted)
        return Bundles(
            (order.runs[0], 0),
            order.own_cache,
            services.link,
            carrier,
            services.peers,
            self._say,
            lambda level, text: log.info("%s", text),
        )

    def _say(self, text: str) -> None:
        self._text = text
        for run in self.order.runs:
            self._services.doing((run, 0), text)


class Prebuilds:
    """The builds of a node; everything but the work itself happens in the agent's loop."""

    def __init__(self, services: NodeServices, submit: Callable[[Callable[[], None]], None]) -> None:
        self._services = services
        self._submit = submit
        self._known: dict[str, Prebuild] = {}
        """By content."""
        shutil.rmtree(_folder(services), ignore_errors=True)

    def apply(self, orders: Sequence[BuildOrder]) -> None:
        """Start what is ordered; builds without an order end a little later, in case they are ordered again."""
        wanted = {order.content: order for order in orders}
        for content, known in self._known.items():
            if content not in wanted and known.missed_at is None:
                known.missed_at = time.monotonic()
        for content, order in wanted.items():
            build = self._known.get(content)
            if build is None or (build.is_reported and build.order.id != order.id):
                build = self._known[content] = Prebuild(order, self._services)
                self._submit(build.run)
            else:
                build.follow(order)
        self.tend()

    def tend(self) -> None:
        """End builds that nobody has ordered for a while."""
        now = time.monotonic()
        for content, build in list(self._known.items()):
            if build.missed_at is not None and (build.is_reported or now - build.missed_at > _LINGER_S):
                build.unwanted.set()
                del self._known[content]

    def close(self) -> None:
        for build in self._known.values():
            build.unwanted.set()


def _folder(services: NodeServices) -> Path:
    return services.paths.root / "builds"


def _never(*_: object) -> NoReturn:
    raise AssertionError("only an attempt asks for that")


def _tail(printed: Path) -> str:
    return printed.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
